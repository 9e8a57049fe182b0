#!/bin/sh
# Four processes on two machines that mpirun reaches by ssh. After its own SIGTERM mpirun gives
# processes the time to save. If a machine fails, start it again: it resumes.
exec mpirun --bind-to none -n 4 --host node1:2,node2:2 --mca odls_base_sigkill_timeout 120 \
  mnist --devices=cpu:4 --global_batch_size=256 --epochs=100 --run_dir=run
