// The pooling plugin for a CPU: its kernels' own text, run for every block and thread, and its C++
// class from creator to enqueue.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace conversions
{
#include "prelude.h"
} // namespace conversions

#define __global__
#define __device__
struct Place
{
    int x;
};
static Place blockIdx, blockDim, threadIdx;
static float half_to_float(unsigned short bits)
{
    return conversions::of_half(bits);
}
static unsigned short float_to_half(float value)
{
    return static_cast<unsigned short>(conversions::half_of(value));
}
static float __int_as_float(int bits)
{
    return conversions::float_of(static_cast<uint32_t>(bits));
}
#include "custom_pool.cu"
#include "custom_pool.h"

char const* cudaGetErrorString(cudaError_t)
{
    return "";
}

cudaError_t launchPool(PoolType type, void const* x, PoolCall const& call, void* y, cudaStream_t)
{
    int ratioBits{};
    std::memcpy(&ratioBits, &call.ratio, sizeof(ratioBits));
    blockDim.x = 32;
    int const blocks = (call.planes * call.output[0] * call.output[1] + 31) / 32;
    auto const launch = [&](auto kernel, auto const* input, auto* output)
    {
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                kernel(input, call.planes, call.input[0], call.input[1], call.output[0], call.output[1],
                    call.kernel[0], call.kernel[1], call.stride[0], call.stride[1], call.padding[0],
                    call.padding[1], call.average, call.countIncludePad, ratioBits, output);
    };
    switch (type)
    {
    case PoolType::kFP32: launch(pool_fp32, static_cast<float const*>(x), static_cast<float*>(y)); break;
    case PoolType::kFP16:
        launch(pool_fp16, static_cast<unsigned short const*>(x), static_cast<unsigned short*>(y));
        break;
    case PoolType::kINT8:
        launch(pool_int8, static_cast<signed char const*>(x), static_cast<signed char*>(y));
        break;
    }
    return cudaSuccess;
}

#include "plugin_library.cpp"
