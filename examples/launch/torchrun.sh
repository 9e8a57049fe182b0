#!/bin/sh
# Two processes on each of two machines. Start it on both, with the machine's number and the same secret:
#   BELFRY_TOKEN=... ./torchrun.sh 0      on node1
#   BELFRY_TOKEN=... ./torchrun.sh 1      on node2
# torchrun starts all processes again when one fails. They resume from the newest checkpoint.
exec torchrun --no-python --nnodes=2 --nproc-per-node=2 --node-rank="$1" \
  --master-addr=node1 --master-port=29500 --max-restarts=5 \
  mnist --devices=cpu:4 --global_batch_size=256 --epochs=100 --run_dir=run
