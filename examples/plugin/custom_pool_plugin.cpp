// CustomPool as a TensorRT plugin (IPluginV3: TensorRT 10 and 11) with its creator.
//
// Input and output are linear NCHW tensors of the same type: FP32, FP16 or INT8. The plugin's fields
// are the attributes of the ONNX node. The parser finds the creator by the node's operator,
// plugin_version and plugin_namespace.
#include "custom_pool.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <NvInfer.h>

namespace
{
using namespace nvinfer1;

constexpr char const* kNAME{"CustomPool"};
constexpr char const* kVERSION{"1"};
constexpr char const* kNAMESPACE{"edgekit"};

//! TensorRT's, from setLoggerFinder.
ILoggerFinder* gLoggerFinder{};

void report(std::string const& text) noexcept
{
    std::string const line = std::string{kNAME} + ": " + text;
    // no finder where the library was opened by something else than loadLibrary
    ILogger* const logger = gLoggerFinder != nullptr ? gLoggerFinder->findLogger() : nullptr;
    if (logger != nullptr)
        logger->log(ILogger::Severity::kERROR, line.c_str());
    else
        std::fprintf(stderr, "%s\n", line.c_str());
}

//! What the node says. Pairs are height, width.
struct Fields
{
    int32_t kernel[2]{};
    int32_t stride[2]{1, 1};
    int32_t padding[2]{};
    int32_t countIncludePad{1};
    bool average{};
    //! 0: TensorRT's own scale of the tensor. It knows none in a network with Q/DQ nodes.
    float inputScale{};
    float outputScale{};
};

//! All fields, with pointers into \p fields.
std::vector<PluginField> listed(Fields const& fields)
{
    char const* const mode = fields.average ? "average" : "max";
    return {
        {"kernel", fields.kernel, PluginFieldType::kINT32, 2},
        {"stride", fields.stride, PluginFieldType::kINT32, 2},
        {"padding", fields.padding, PluginFieldType::kINT32, 2},
        {"mode", mode, PluginFieldType::kCHAR, static_cast<int32_t>(std::strlen(mode))},
        {"count_include_pad", &fields.countIncludePad, PluginFieldType::kINT32, 1},
        {"input_scale", &fields.inputScale, PluginFieldType::kFLOAT32, 1},
        {"output_scale", &fields.outputScale, PluginFieldType::kFLOAT32, 1},
    };
}

void require(bool truth, std::string const& otherwise)
{
    if (!truth)
        throw std::invalid_argument{otherwise};
}

void read(PluginField const& field, void* target, PluginFieldType type, int32_t length, int32_t size)
{
    require(field.type == type && field.length == length && field.data != nullptr,
        std::string{"field '"} + field.name + "' must have " + std::to_string(length)
            + (type == PluginFieldType::kINT32 ? " of INT32" : " of FLOAT32"));
    std::memcpy(target, field.data, static_cast<size_t>(length) * size);
}

Fields parsed(PluginFieldCollection const& given)
{
    Fields fields{};
    for (int32_t i = 0; i < given.nbFields; i++)
    {
        PluginField const& field = given.fields[i];
        std::string const name{field.name};
        if (name == "kernel")
            read(field, fields.kernel, PluginFieldType::kINT32, 2, sizeof(int32_t));
        else if (name == "stride")
            read(field, fields.stride, PluginFieldType::kINT32, 2, sizeof(int32_t));
        else if (name == "padding")
            read(field, fields.padding, PluginFieldType::kINT32, 2, sizeof(int32_t));
        else if (name == "count_include_pad")
            read(field, &fields.countIncludePad, PluginFieldType::kINT32, 1, sizeof(int32_t));
        else if (name == "input_scale")
            read(field, &fields.inputScale, PluginFieldType::kFLOAT32, 1, sizeof(float));
        else if (name == "output_scale")
            read(field, &fields.outputScale, PluginFieldType::kFLOAT32, 1, sizeof(float));
        else if (name == "mode")
        {
            require(field.type == PluginFieldType::kCHAR && field.data != nullptr, "field 'mode' must be text");
            std::string mode{static_cast<char const*>(field.data), static_cast<size_t>(field.length)};
            mode.erase(mode.find_last_not_of('\0') + 1); // a caller may count the last zero byte
            require(mode == "max" || mode == "average", "mode '" + mode + "' is neither 'max' nor 'average'");
            fields.average = mode == "average";
        }
    }
    for (int32_t axis = 0; axis < 2; axis++)
    {
        require(fields.kernel[axis] > 0 && fields.stride[axis] > 0, "kernel and stride must be above 0");
        // so every window has a value of the input
        require(fields.padding[axis] >= 0 && fields.padding[axis] < fields.kernel[axis],
            "padding must be at least 0 and less than the kernel");
    }
    return fields;
}

class CustomPool final : public IPluginV3,
                         public IPluginV3OneCore,
                         public IPluginV3OneBuild,
                         public IPluginV3OneRuntime
{
public:
    explicit CustomPool(Fields const& fields)
        : mFields{fields}
    {
    }

    // IPluginV3

    IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override
    {
        switch (type)
        {
        case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    IPluginV3* clone() noexcept override
    {
        return new (std::nothrow) CustomPool{mFields};
    }

    // IPluginV3OneCore

    AsciiChar const* getPluginName() const noexcept override
    {
        return kNAME;
    }

    AsciiChar const* getPluginVersion() const noexcept override
    {
        return kVERSION;
    }

    AsciiChar const* getPluginNamespace() const noexcept override
    {
        return kNAMESPACE;
    }

    // IPluginV3OneBuild

    int32_t getNbOutputs() const noexcept override
    {
        return 1;
    }

    int32_t getOutputDataTypes(
        DataType* outputs, int32_t nbOutputs, DataType const* inputs, int32_t nbInputs) const noexcept override
    {
        if (nbInputs != 1 || nbOutputs != 1)
            return -1;
        outputs[0] = inputs[0];
        return 0;
    }

    int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs, DimsExprs const*, int32_t,
        DimsExprs* outputs, int32_t nbOutputs, IExprBuilder& builder) noexcept override
    {
        if (nbInputs != 1 || nbOutputs != 1 || inputs[0].nbDims != 4)
        {
            report("one input of four dimensions is needed");
            return -1;
        }
        outputs[0] = inputs[0];
        for (int32_t axis = 0; axis < 2; axis++)
        {
            // (size + 2 * padding - kernel) / stride + 1
            auto const* const padded = builder.operation(
                DimensionOperation::kSUM, *inputs[0].d[2 + axis], *builder.constant(2 * mFields.padding[axis]));
            auto const* const room
                = builder.operation(DimensionOperation::kSUB, *padded, *builder.constant(mFields.kernel[axis]));
            auto const* const steps = builder.operation(
                DimensionOperation::kFLOOR_DIV, *room, *builder.constant(mFields.stride[axis]));
            outputs[0].d[2 + axis] = builder.operation(DimensionOperation::kSUM, *steps, *builder.constant(1));
        }
        return 0;
    }

    bool supportsFormatCombination(
        int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t nbInputs, int32_t nbOutputs) noexcept override
    {
        PluginTensorDesc const& asked = inOut[pos].desc;
        bool const known
            = asked.type == DataType::kFLOAT || asked.type == DataType::kHALF || asked.type == DataType::kINT8;
        return nbInputs == 1 && nbOutputs == 1 && asked.format == TensorFormat::kLINEAR && known
            && asked.type == inOut[0].desc.type;
    }

    int32_t configurePlugin(
        DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }

    // IPluginV3OneRuntime

    int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) noexcept override
    {
        return 0;
    }

    int32_t enqueue(PluginTensorDesc const* inputs, PluginTensorDesc const* outputs, void const* const* from,
        void* const* to, void*, cudaStream_t stream) noexcept override
    {
        PluginTensorDesc const& x = inputs[0];
        PluginTensorDesc const& y = outputs[0];
        PoolCall call{};
        call.planes = static_cast<int32_t>(x.dims.d[0] * x.dims.d[1]);
        for (int32_t axis = 0; axis < 2; axis++)
        {
            call.input[axis] = static_cast<int32_t>(x.dims.d[2 + axis]);
            call.output[axis] = static_cast<int32_t>(y.dims.d[2 + axis]);
            call.kernel[axis] = mFields.kernel[axis];
            call.stride[axis] = mFields.stride[axis];
            call.padding[axis] = mFields.padding[axis];
        }
        call.average = mFields.average;
        call.countIncludePad = mFields.countIncludePad;
        PoolType type{PoolType::kFP32};
        if (x.type == DataType::kHALF)
            type = PoolType::kFP16;
        if (x.type == DataType::kINT8)
        {
            type = PoolType::kINT8;
            float const inputScale = mFields.inputScale > 0 ? mFields.inputScale : x.scale;
            float const outputScale = mFields.outputScale > 0 ? mFields.outputScale : y.scale;
            if (!(inputScale > 0 && outputScale > 0))
            {
                report("INT8 needs scales: TensorRT has none here, so give input_scale and output_scale");
                return -1;
            }
            call.ratio = inputScale / outputScale;
        }
        cudaError_t const status = launchPool(type, from[0], call, to[0], stream);
        if (status != cudaSuccess)
            report(cudaGetErrorString(status));
        return status == cudaSuccess ? 0 : -1;
    }

    IPluginV3* attachToContext(IPluginResourceContext*) noexcept override
    {
        return clone();
    }

    PluginFieldCollection const* getFieldsToSerialize() noexcept override
    {
        // here, not in the constructor: they point into this object
        mListed = listed(mFields);
        mCollection = {static_cast<int32_t>(mListed.size()), mListed.data()};
        return &mCollection;
    }

private:
    Fields const mFields;
    std::vector<PluginField> mListed;
    PluginFieldCollection mCollection{};
};

class CustomPoolCreator final : public IPluginCreatorV3One
{
public:
    CustomPoolCreator()
    {
        for (PluginField& field : mListed)
            field.data = nullptr;
    }

    IPluginV3* createPlugin(
        AsciiChar const*, PluginFieldCollection const* given, TensorRTPhase) noexcept override
    {
        try
        {
            return new CustomPool{parsed(*given)};
        }
        catch (std::exception const& error)
        {
            report(error.what());
            return nullptr;
        }
    }

    PluginFieldCollection const* getFieldNames() noexcept override
    {
        return &mCollection;
    }

    AsciiChar const* getPluginName() const noexcept override
    {
        return kNAME;
    }

    AsciiChar const* getPluginVersion() const noexcept override
    {
        return kVERSION;
    }

    AsciiChar const* getPluginNamespace() const noexcept override
    {
        return kNAMESPACE;
    }

private:
    std::vector<PluginField> mListed{listed(Fields{})};
    PluginFieldCollection const mCollection{static_cast<int32_t>(mListed.size()), mListed.data()};
};
} // namespace

// IPluginRegistry::loadLibrary calls these two.

extern "C" void setLoggerFinder(nvinfer1::ILoggerFinder* finder)
{
    gLoggerFinder = finder;
}

extern "C" nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count)
{
    static CustomPoolCreator creator;
    static nvinfer1::IPluginCreatorInterface* const creators[]{&creator};
    count = 1;
    return creators;
}
