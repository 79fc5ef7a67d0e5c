"""Whole studies on digits with models too small and too short to show anything, for their plumbing."""

from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.paper.config import StudyConfig
from gausslens.paper.registry import find_study
from gausslens.paper.run import plan_study
from gausslens.paper.study import Findings

SMALL = {"kimg": 0.3, "early": 0.1, "width": 4, "count": 6, "samples": 4, "sizes": (16, 64), "few": 16, "cpu": True}


def small_plan(name, **options):
    """A plan for one study that takes seconds."""
    return plan_study(StudyConfig("digits", only=(name,), **{**SMALL, **options}))


def findings_in(plan, name, folder):
    """What a folder of tasks holds of a study."""
    return Findings(plan, name, find_study(name).parts(plan), TaskStore(folder))


def run_small(name, folder, **options):
    """A study's findings after all its tasks have run."""
    plan = small_plan(name, **options)
    outcome = run_tasks([part.task for part in find_study(name).parts(plan)], folder, on="here")
    assert not outcome.failed, outcome.failed
    return findings_in(plan, name, folder)


def check_drawing(name, findings, empty):
    """A study draws every figure that it names, with points or pictures and words, and nothing out of nothing."""
    study = find_study(name)
    figures = study.draw(findings)
    assert {number for figure in figures for number in figure.redraws} == set(study.figures)
    for figure in figures:
        assert figure.caption
        assert figure.command
        assert set(figure.claims) <= set(study.claims)
        for series in getattr(figure, "series", ()):
            assert len(series.x) > 1
    assert len({figure.title for figure in figures}) == len(figures)
    assert study.draw(findings_in(findings.plan, name, empty)) == []
    return {figure.title: figure for figure in figures}


def missing(findings, *claims):
    """Which records the statistics of claims lack, by the statistic's name."""
    from gausslens.paper.claims import judge

    return {
        statistic.name: statistic.missing
        for verdict in judge(findings.records)
        if verdict.claim in claims
        for statistic in verdict.statistics
    }
