// The pooling kernels, as the C++ plugin launches them.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

enum class PoolType : int32_t
{
    kFP32,
    kFP16,
    kINT8
};

//! One call. Pairs are height, width. Tensors are linear [planes, height, width].
struct PoolCall
{
    int32_t planes; //!< batch times channels
    int32_t input[2];
    int32_t output[2];
    int32_t kernel[2];
    int32_t stride[2];
    int32_t padding[2];
    int32_t average;         //!< 1 for the mean, 0 for the largest value
    int32_t countIncludePad; //!< 1 where the mean counts padding as zeros
    float ratio;             //!< INT8: input scale / output scale; other types do not read it
};

//! Puts the kernel on the stream; returns what CUDA said of the launch.
cudaError_t launchPool(PoolType type, void const* x, PoolCall const& call, void* y, cudaStream_t stream);
