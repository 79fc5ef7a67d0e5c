"""Find out how many images a network needs so that it does not memorise them.

Networks are trained on more and more of your images, and copies are counted among their samples. The answer also says how
long a network may train. The same command continues after any stop. More --seeds or a longer --budget make the answer more
precise.

Examples:
  gausslens how-many digits
  gausslens how-many digits --width 32 --kimg 200 --budget 20
  gausslens how-many scans/ --size 64 --network ncsnpp --width 64 --kimg 1000 --no-images
  gausslens how-many photos.zip --sizes 100,1000,10000 --dry-run
"""

from ..sample_size.config import HowManyConfig as Options
from . import GlobalOptions
from .study import bars, listing, tell_rest


def run(options: Options, how: GlobalOptions) -> None:
    """Train the networks and print the answer."""
    from ..paper.run import plan_study
    from ..sample_size.how_many import Question, how_many

    plan = plan_study(options.study, progress=how.progress)
    if how.dry_run:
        question, rows = Question(options, plan), []
        for n, seed in question.first_round():
            task = question.task(n, seed)
            cost = task.cost + sum(need.cost for need in task.needs)
            rows.append((question.store.is_done(task), cost, f"{n:,} images, seed {seed}"))
        more = f"Up to 4 sizes around the transition, with {options.seeds} seeds each, follow."
        print(listing(rows, "fewer sizes (--sizes)"), more)
        return
    with bars("how many", how.progress) as show:
        found = how_many(options, plan=plan, progress=show)
    if found.answer is None:
        print("Too few networks are finished for an answer.")
    else:
        print(found.answer.words)
        print(f"The numbers are in {found.run.path / 'answer.json'}, the page is {found.page}")
    tell_rest(found.outcome)
