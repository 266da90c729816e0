# Llama-3.1-405B on 8 MI325X, written from tables 3, 6 and 11 of arXiv:2603.10031 (profile balanced).
export VLLM_ROCM_USE_AITER=1
export VLLM_ROCM_USE_AITER_MHA=1 VLLM_ROCM_USE_AITER_MLA=0 VLLM_ROCM_USE_AITER_MOE=0
vllm serve meta-llama/Llama-3.1-405B-Instruct --tensor-parallel-size 8 --quantization fp8 \
  --max-model-len 32768 --max-num-seqs 512 --max-num-batched-tokens 16384 --num-scheduler-steps 10
