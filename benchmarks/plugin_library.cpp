// Calls the C++ plugin of examples/plugin as TensorRT does, without TensorRT: benchmarks/plugin_kernel.py
// compiles it with examples/plugin/stub/NvInfer.h. Each step fails where the plugin breaks a promise.
#include "custom_pool_plugin.cpp"

#include <deque>

namespace nvinfer1
{
//! Here an expression is its value.
class IDimensionExpr
{
public:
    int64_t value;
};

IDimensionExpr const* IExprBuilder::constant(int64_t value) noexcept
{
    static std::deque<IDimensionExpr> values;
    values.push_back({value});
    return &values.back();
}

IDimensionExpr const* IExprBuilder::operation(
    DimensionOperation op, IDimensionExpr const& first, IDimensionExpr const& second) noexcept
{
    switch (op)
    {
    case DimensionOperation::kSUM: return constant(first.value + second.value);
    case DimensionOperation::kSUB: return constant(first.value - second.value);
    default: return constant(first.value / second.value);
    }
}
} // namespace nvinfer1

//! Pools \p x to \p y, both of \p type (0 FP32, 1 FP16, 2 INT8), through creator, build and run time.
//! \p shape has four sizes of x, \p out those expected of y. The scales are TensorRT's, or the fields
//! with \p scalesAsFields. Returns 0, or the number of the step that failed.
extern "C" int poolThroughPlugin(int type, int const* shape, int const* out, int const* kernel,
    int const* stride, int const* padding, char const* mode, int countIncludePad, float inputScale,
    float outputScale, int scalesAsFields, void const* x, void* y)
{
    using namespace nvinfer1;
    int32_t creators{};
    auto* const creator = static_cast<IPluginCreatorV3One*>(getCreators(creators)[0]);
    std::vector<PluginField> fields{
        {"kernel", kernel, PluginFieldType::kINT32, 2},
        {"stride", stride, PluginFieldType::kINT32, 2},
        {"padding", padding, PluginFieldType::kINT32, 2},
        {"mode", mode, PluginFieldType::kCHAR, static_cast<int32_t>(std::strlen(mode) + 1)},
        {"count_include_pad", &countIncludePad, PluginFieldType::kINT32, 1},
    };
    if (scalesAsFields)
    {
        fields.emplace_back("input_scale", &inputScale, PluginFieldType::kFLOAT32, 1);
        fields.emplace_back("output_scale", &outputScale, PluginFieldType::kFLOAT32, 1);
    }
    PluginFieldCollection const given{static_cast<int32_t>(fields.size()), fields.data()};
    IPluginV3* const built = creator->createPlugin("pool", &given, TensorRTPhase::kBUILD);
    if (built == nullptr)
        return 1;
    auto* const build
        = static_cast<IPluginV3OneBuild*>(built->getCapabilityInterface(PluginCapabilityType::kBUILD));
    IExprBuilder builder;
    DimsExprs from{4, {}};
    DimsExprs to{};
    for (int axis = 0; axis < 4; axis++)
        from.d[axis] = builder.constant(shape[axis]);
    if (build->getNbOutputs() != 1 || build->getOutputShapes(&from, 1, nullptr, 0, &to, 1, builder) != 0)
        return 2;
    DynamicPluginTensorDesc described[2]{};
    DataType const types[]{DataType::kFLOAT, DataType::kHALF, DataType::kINT8};
    for (int side = 0; side < 2; side++)
    {
        described[side].desc = {{4, {}}, types[type], TensorFormat::kLINEAR, 0};
        if (!scalesAsFields)
            described[side].desc.scale = side ? outputScale : inputScale;
        for (int axis = 0; axis < 4; axis++)
            described[side].desc.dims.d[axis] = (side ? to : from).d[axis]->value;
        if (!build->supportsFormatCombination(side, described, 1, 1))
            return 3;
    }
    for (int axis = 0; axis < 4; axis++)
        if (described[1].desc.dims.d[axis] != out[axis])
            return 4;
    DataType answered{};
    if (build->getOutputDataTypes(&answered, 1, &types[type], 1) != 0 || answered != types[type])
        return 5;
    if (build->configurePlugin(described, 1, described + 1, 1) != 0)
        return 6;
    // as the engine stores the plugin, and makes it again when it is loaded
    auto* const stored
        = static_cast<IPluginV3OneRuntime*>(built->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    IPluginV3* const loaded
        = creator->createPlugin("pool", stored->getFieldsToSerialize(), TensorRTPhase::kRUNTIME);
    delete built;
    if (loaded == nullptr)
        return 7;
    auto* const first
        = static_cast<IPluginV3OneRuntime*>(loaded->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    IPluginV3* const attached = first->attachToContext(nullptr);
    delete loaded;
    auto* const runtime
        = static_cast<IPluginV3OneRuntime*>(attached->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    PluginTensorDesc const ends[]{described[0].desc, described[1].desc};
    int status = runtime->onShapeChange(ends, 1, ends + 1, 1) == 0 ? 0 : 8;
    if (status == 0 && runtime->enqueue(ends, ends + 1, &x, &y, nullptr, nullptr) != 0)
        status = 9;
    delete attached;
    return status;
}
