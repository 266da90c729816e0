# Kimi-K2.5 on 4 of 8 MI325X, written from tables 3 and 11 of arXiv:2603.10031.
VLLM_ROCM_USE_AITER=0 VLLM_USE_TRITON_FLASH_ATTN=0 \
vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size 4 --block-size 1 --trust-remote-code
