"""What the identities of 0.1's tasks are made of.

Version 0.1 hashed the place of a task's function. Finished work is found by that hash, so these strings stay, wherever the
functions go. A task that is new has its name alone.
"""

KEYS_OF_0_1 = {
    "check_theorem": "gausslens.studies.theorem:check_theorem",
    "compare_gaussians": "gausslens.studies.subsets:compare_gaussians",
    "compare_layouts": "gausslens.studies.layouts:compare_layouts",
    "compare_samples": "gausslens.studies.agreements:compare_samples",
    "compare_with_stationary": "gausslens.studies.stationarity:compare_with_stationary",
    "denoise_images": "gausslens.studies.outputs:denoise_images",
    "describe_images": "gausslens.studies.describing:describe_images",
    "distill_by_adam": "gausslens.studies.distilling:distill_by_adam",
    "distill_model": "gausslens.studies.distilling:distill_model",
    "explain_gaussian": "gausslens.studies.explaining:explain_gaussian",
    "explain_variance": "gausslens.studies.explaining:explain_variance",
    "follow_jacobians": "gausslens.studies.sensitivity:follow_jacobians",
    "follow_levels": "gausslens.studies.levels:follow_levels",
    "follow_trajectories": "gausslens.studies.trajectories:follow_trajectories",
    "look_at_copies": "gausslens.sufficiency.looking:look_at_copies",
    "look_at_snapshot": "gausslens.studies.snapshots:look_at_snapshot",
    "measure_levels": "gausslens.studies.levels:measure_levels",
    "measure_model": "gausslens.studies.models:measure_model",
    "refine_at_levels": "gausslens.studies.refining:refine_at_levels",
    "sample_model": "gausslens.studies.models:sample_model",
    "train_model": "gausslens.studies.models:train_model",
    "vary_weights": "gausslens.studies.superposing:vary_weights",
}
