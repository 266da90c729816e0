#!/bin/sh
# DeepSeek V3.2 on 8 MI325X, written from tables 3, 6 and 11 of arXiv:2603.10031 (profile balanced).
docker run --rm --device /dev/kfd --device /dev/dri --ipc host -p 8000:8000 \
  -e VLLM_ROCM_USE_AITER=1 -e VLLM_ROCM_USE_AITER_MHA=0 -e VLLM_ROCM_USE_AITER_MLA=1 \
  -e VLLM_ROCM_USE_AITER_MOE=1 -e AITER_ENABLE_VSKIP=0 \
  vllm/vllm-openai-rocm:latest \
  --model deepseek-ai/DeepSeek-V3.2 --tensor-parallel-size 8 --block-size 1 --quantization fp8 \
  --max-num-seqs 512 --max-num-batched-tokens 16384 --num-scheduler-steps 10
