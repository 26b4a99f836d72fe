// Pooling of linear NCHW tensors in FP32, FP16 and INT8: what custom_pool.py computes in NumPy, bit
// for bit. nvcc compiles this file into the C++ plugin, NVRTC compiles it for the Python plugin.
//
// The parameters of a kernel are a pointer, whole numbers and a pointer, because TensorRT calls the
// kernel of an ahead-of-time plugin so (tensorrt.plugin.aot_impl). A scale travels as its bits.
#define POOL_NUMBERS                                                                               \
    int planes, int height, int width, int out_height, int out_width, int kernel_height,           \
        int kernel_width, int stride_height, int stride_width, int pad_height, int pad_width,      \
        int average, int count_include_pad, int ratio_bits
#define POOL_GIVEN                                                                                 \
    planes, height, width, out_height, out_width, kernel_height, kernel_width, stride_height,      \
        stride_width, pad_height, pad_width, average, count_include_pad, ratio_bits

#ifdef __CUDACC__
// cuda_fp16.h is not needed: NVRTC finds no headers by itself
static __device__ float half_to_float(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static __device__ unsigned short float_to_half(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif

struct Fp32
{
    typedef float Stored;
    typedef float Value;
    static __device__ Value load(Stored stored) { return stored; }
    static __device__ Stored store(float value, float) { return value; }
};

struct Fp16
{
    typedef unsigned short Stored;
    typedef float Value; // sums in FP32
    static __device__ Value load(Stored stored) { return half_to_float(stored); }
    static __device__ Stored store(float value, float) { return float_to_half(value); }
};

struct Int8
{
    typedef signed char Stored;
    typedef int Value; // sums are exact
    static __device__ Value load(Stored stored) { return stored; }
    // half to even, then saturated
    static __device__ Stored store(float value, float ratio)
    {
        return (Stored) fminf(fmaxf(rintf(value * ratio), -128.0f), 127.0f);
    }
};

// One thread computes one output. A window's values are added row by row, as NumPy's reference does.
template <typename Type>
static __device__ void pool(typename Type::Stored const* x, POOL_NUMBERS, typename Type::Stored* y)
{
    long long const index = (long long) blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long) planes * out_height * out_width)
        return;
    int const column = (int) (index % out_width);
    int const row = (int) (index / out_width % out_height);
    x += index / out_width / out_height * height * width;
    int const top = row * stride_height - pad_height;
    int const left = column * stride_width - pad_width;
    int const first_row = top > 0 ? top : 0;
    int const first_column = left > 0 ? left : 0;
    int const end_row = top + kernel_height < height ? top + kernel_height : height;
    int const end_column = left + kernel_width < width ? left + kernel_width : width;

    typename Type::Value sum = 0;
    typename Type::Value largest = Type::load(x[(long long) first_row * width + first_column]);
    for (int i = first_row; i < end_row; i++)
    {
        for (int j = first_column; j < end_column; j++)
        {
            typename Type::Value const value = Type::load(x[(long long) i * width + j]);
            sum += value;
            // a NaN stays
            if (value > largest || value != value)
                largest = value;
        }
    }
    int const count = count_include_pad ? kernel_height * kernel_width
                                        : (end_row - first_row) * (end_column - first_column);
    float const result = average ? (float) sum / (float) count : (float) largest;
    y[index] = Type::store(result, __int_as_float(ratio_bits));
}

extern "C" __global__ void pool_fp32(float const* x, POOL_NUMBERS, float* y)
{
    pool<Fp32>(x, POOL_GIVEN, y);
}

extern "C" __global__ void pool_fp16(unsigned short const* x, POOL_NUMBERS, unsigned short* y)
{
    pool<Fp16>(x, POOL_GIVEN, y);
}

extern "C" __global__ void pool_int8(signed char const* x, POOL_NUMBERS, signed char* y)
{
    pool<Int8>(x, POOL_GIVEN, y);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include "custom_pool.h"

#include <cstring>

cudaError_t launchPool(PoolType type, void const* x, PoolCall const& call, void* y, cudaStream_t stream)
{
    constexpr int32_t kTHREADS{256};
    int64_t const count = int64_t{call.planes} * call.output[0] * call.output[1];
    if (count == 0)
        return cudaSuccess;
    int64_t const blocks = (count + kTHREADS - 1) / kTHREADS;
    if (blocks > INT32_MAX)
        return cudaErrorInvalidValue;
    int32_t ratioBits{};
    std::memcpy(&ratioBits, &call.ratio, sizeof(ratioBits));
    auto const launch = [&](auto kernel, auto const* input, auto* output)
    {
        kernel<<<static_cast<uint32_t>(blocks), kTHREADS, 0, stream>>>(input, call.planes,
            call.input[0], call.input[1], call.output[0], call.output[1], call.kernel[0],
            call.kernel[1], call.stride[0], call.stride[1], call.padding[0], call.padding[1],
            call.average, call.countIncludePad, ratioBits, output);
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
    return cudaGetLastError();
}
#endif
