# Fine-tuning on two cores, its checkpoint joined, the adapter merged, and the result compiled.
export NEURON_FUSE_SOFTMAX=1
export NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS=3
export MALLOC_ARENA_MAX=64

PROCESSES_PER_NODE=2
TP_DEGREE=2
OUTPUT_DIR="finetuned"

torchrun --nproc_per_node $PROCESSES_PER_NODE finetune_llama.py \
  --model_id "acme/llama" \
  --num_train_epochs 1 \
  --max_steps 2 \
  --do_train \
  --per_device_train_batch_size 1 \
  --per_device_eval_batch_size 1 \
  --gradient_accumulation_steps 2 \
  --gradient_checkpointing true \
  --learning_rate 5e-4 \
  --warmup_ratio 0.03 \
  --weight_decay 0.05 \
  --bf16 \
  --zero_1 false \
  --tensor_parallel_size $TP_DEGREE \
  --async_save \
  --logging_steps 1 \
  --save_steps 2 \
  --save_total_limit 1 \
  --lr_scheduler_type "constant" \
  --overwrite_output_dir \
  --report_to none \
  --output_dir "$OUTPUT_DIR"

optimum-cli neuron consolidate "$OUTPUT_DIR/checkpoint-2/adapter_default" "$OUTPUT_DIR/adapter"
