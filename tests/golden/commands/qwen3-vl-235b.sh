# Qwen3-VL-235B on 8 MI325X, written from tables 3 and 11 of arXiv:2603.10031.
export VLLM_ROCM_USE_AITER=1 VLLM_ROCM_USE_AITER_MHA=1 VLLM_ROCM_USE_AITER_MLA=0
export VLLM_ROCM_USE_AITER_MOE=1 VLLM_USE_TRITON_FLASH_ATTN=0
python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-VL-235B-A22B-Instruct \
  --tensor-parallel-size 8 --kv-offloading-backend native --kv-offloading-size 64
