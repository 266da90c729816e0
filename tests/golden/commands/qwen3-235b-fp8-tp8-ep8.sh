# DP1/TP8/EP8 for Qwen3-235B FP8 on 8 MI325X, written from the settings that
# https://www.digitalocean.com/blog/technical-deep-dive-character-ai-amd names.
export VLLM_USE_V1=1
export SAFETENSORS_FAST_GPU=1
export VLLM_ROCM_USE_AITER=1 VLLM_ROCM_USE_AITER_MOE=1
export VLLM_USE_TRITON_FLASH_ATTN=0

vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 \
  --tensor-parallel-size 8 \
  --enable-expert-parallel \
  --quantization fp8 \
  --kv-cache-dtype fp8 \
  --max-model-len 32768 \
  --max_num_batched_tokens 32768 \
  --gpu-memory-utilization 0.90 \
  --distributed-executor-backend mp \
  --enable-prefix-caching \
  --disable-log-requests \
  --trust-remote-code \
  --compilation-config '{"full_cuda_graph": false, "max_capture_size": 32768}'
