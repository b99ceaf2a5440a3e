"""The same loop under Ray Train."""

import os
import sys

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from stepper import ray_train

ray.init(address=os.environ["BENCH_RAY"], log_to_driver=False)
TorchTrainer(
    ray_train,
    train_loop_config={"folder": sys.argv[1]},
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
    run_config=RunConfig(
        storage_path=f"{sys.argv[1]}/train", failure_config=FailureConfig(max_failures=2)
    ),
).fit()
