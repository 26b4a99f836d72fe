// What custom_pool_plugin.cpp uses of TensorRT 10's C++ API, so that a compiler checks the file where
// TensorRT is missing: names, parameters and qualifiers as NVIDIA's API reference has them
// (docs.nvidia.com/deeplearning/tensorrt, "C++ API": NvInferRuntime.h). Values and the order of
// virtual functions are not NVIDIA's, and nothing built with this file can be loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace nvinfer1
{
using AsciiChar = char;

enum class DataType : int32_t
{
    kFLOAT,
    kHALF,
    kINT8,
    kINT32
};
enum class TensorFormat : int32_t
{
    kLINEAR
};
enum class DimensionOperation : int32_t
{
    kSUM,
    kSUB,
    kFLOOR_DIV
};
enum class PluginFieldType : int32_t
{
    kFLOAT32,
    kINT32,
    kCHAR,
    kUNKNOWN
};
enum class PluginCapabilityType : int32_t
{
    kCORE,
    kBUILD,
    kRUNTIME
};
enum class TensorRTPhase : int32_t
{
    kBUILD,
    kRUNTIME
};

class Dims64
{
public:
    static constexpr int32_t MAX_DIMS{8};
    int32_t nbDims;
    int64_t d[MAX_DIMS];
};
using Dims = Dims64;

class IDimensionExpr;
class DimsExprs
{
public:
    int32_t nbDims;
    IDimensionExpr const* d[Dims::MAX_DIMS];
};
class IExprBuilder
{
public:
    IDimensionExpr const* constant(int64_t value) noexcept;
    IDimensionExpr const* operation(
        DimensionOperation op, IDimensionExpr const& first, IDimensionExpr const& second) noexcept;
};

struct PluginTensorDesc
{
    Dims dims;
    DataType type;
    TensorFormat format;
    float scale;
};
struct DynamicPluginTensorDesc
{
    PluginTensorDesc desc;
    Dims min;
    Dims max;
    Dims opt;
};

class PluginField
{
public:
    AsciiChar const* name;
    void const* data;
    PluginFieldType type;
    int32_t length;
    PluginField(AsciiChar const* const name_ = nullptr, void const* const data_ = nullptr,
        PluginFieldType const type_ = PluginFieldType::kUNKNOWN, int32_t const length_ = 0) noexcept
        : name(name_)
        , data(data_)
        , type(type_)
        , length(length_)
    {
    }
};
struct PluginFieldCollection
{
    int32_t nbFields;
    PluginField const* fields;
};

class ILogger
{
public:
    enum class Severity : int32_t
    {
        kERROR
    };
    virtual void log(Severity severity, AsciiChar const* msg) noexcept = 0;
};
class ILoggerFinder
{
public:
    virtual ILogger* findLogger() = 0;
};

class IVersionedInterface
{
public:
    virtual ~IVersionedInterface() noexcept = default;
};
class IPluginCapability : public IVersionedInterface
{
};
class IPluginCreatorInterface : public IVersionedInterface
{
};
class IPluginResourceContext;

class IPluginV3 : public IVersionedInterface
{
public:
    virtual IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept = 0;
    virtual IPluginV3* clone() noexcept = 0;
};
class IPluginV3OneCore : public IPluginCapability
{
public:
    virtual AsciiChar const* getPluginName() const noexcept = 0;
    virtual AsciiChar const* getPluginVersion() const noexcept = 0;
    virtual AsciiChar const* getPluginNamespace() const noexcept = 0;
};
class IPluginV3OneBuild : public IPluginCapability
{
public:
    virtual int32_t configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs,
        DynamicPluginTensorDesc const* out, int32_t nbOutputs) noexcept = 0;
    virtual int32_t getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs,
        DataType const* inputTypes, int32_t nbInputs) const noexcept = 0;
    virtual int32_t getOutputShapes(DimsExprs const* inputs, int32_t nbInputs,
        DimsExprs const* shapeInputs, int32_t nbShapeInputs, DimsExprs* outputs, int32_t nbOutputs,
        IExprBuilder& exprBuilder) noexcept = 0;
    virtual bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut,
        int32_t nbInputs, int32_t nbOutputs) noexcept = 0;
    virtual int32_t getNbOutputs() const noexcept = 0;
};
class IPluginV3OneRuntime : public IPluginCapability
{
public:
    virtual int32_t onShapeChange(PluginTensorDesc const* in, int32_t nbInputs,
        PluginTensorDesc const* out, int32_t nbOutputs) noexcept = 0;
    virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
        void const* const* inputs, void* const* outputs, void* workspace,
        cudaStream_t stream) noexcept = 0;
    virtual IPluginV3* attachToContext(IPluginResourceContext* context) noexcept = 0;
    virtual PluginFieldCollection const* getFieldsToSerialize() noexcept = 0;
};
class IPluginCreatorV3One : public IPluginCreatorInterface
{
public:
    virtual IPluginV3* createPlugin(
        AsciiChar const* name, PluginFieldCollection const* fc, TensorRTPhase phase) noexcept = 0;
    virtual PluginFieldCollection const* getFieldNames() noexcept = 0;
    virtual AsciiChar const* getPluginName() const noexcept = 0;
    virtual AsciiChar const* getPluginVersion() const noexcept = 0;
    virtual AsciiChar const* getPluginNamespace() const noexcept = 0;
};
} // namespace nvinfer1
