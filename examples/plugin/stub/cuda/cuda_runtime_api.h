// What the plugin uses of CUDA's runtime API, for a compiler without CUDA. See ../NvInfer.h.
#pragma once

enum cudaError_t
{
    cudaSuccess
};
typedef struct CUstream_st* cudaStream_t;
char const* cudaGetErrorString(cudaError_t error);
