"""Run on two processes by torchrun: a training that is watched, keeps checkpoints and is stopped; writes what came of it."""

import sys
from pathlib import Path

import torch
from test_lightning import Eager, growing
from test_monitor import HELD_OUT, TRAIN

from gausslens.monitor.lightning import monitoring_callback


def main():
    import lightning.pytorch as lightning

    torch.set_num_threads(1)
    monitor, folder = Eager(TRAIN, HELD_OUT), Path(sys.argv[1])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        callbacks=[monitoring_callback(monitor, keep=folder / "kept", stop=True)],
        max_steps=50,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(growing(), torch.utils.data.DataLoader(torch.zeros(100, 1), batch_size=1))
    Path(folder, f"{trainer.global_rank}.txt").write_text(f"{trainer.global_step} {monitor.recommended}")
    torch.distributed.barrier()  # a process that ends while another still speaks to it may abort
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
