export PATH=/work/ci/main/build/release/bin:$PATH BELFRY_DATA_DIR=/work/shared/data
belfry flags > /work/ci/main/docs/flags.md
cd /tmp/plan_check; rm -rf r_*; 
mnist --devices=cpu:2 --global_batch_size=64 --max_steps=20 | grep -i hash
resnet20 --devices=cpu:2 --global_batch_size=32 --max_steps=5 --run_dir=r_resnet20| grep -i hash
gpt --devices=cpu:2 --global_batch_size=8 --max_steps=5 --run_dir=r_gpt| grep -i hash
