// Linear layers, as plain loops.
#include <math.h>

#include <vector>

#include "../kernels/families.h"
#include "gated.h"
#include "packed.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// A row as it is multiplied: floats, or a code for each value and a scale for each group.
struct Inputs {
    std::vector<float> values;
    std::vector<int> codes;
    std::vector<float> scales;
};

// Groups below this peak count as zeros: 127 / peak stays finite.
constexpr float kLeastPeak = 1e-30f;

void quantize_group(const float* values, int* codes, float& scale) {
    float peak = 0;
    bool is_finite = true;
    for (Index i = 0; i < kGroup; ++i) {
        is_finite = is_finite && values[i] - values[i] == 0.0f;
        peak = ::fmaxf(peak, ::fabsf(values[i]));
    }
    scale = is_finite ? peak / 127.0f : NAN;
    const float inverse = is_finite && peak > kLeastPeak ? 127.0f / peak : 0.0f;
    for (Index i = 0; i < kGroup; ++i) {
        codes[i] = is_finite ? static_cast<int>(::nearbyintf(values[i] * inverse)) : 0;
    }
}

Inputs inputs_for(const Weight& weight, const Rows& x, Index row) {
    const Type type = weight.packing == Packing::bf16 ? Type::bf16 : Type::f32;
    Inputs inputs;
    inputs.values.resize(round_up(weight.inputs, kGroup));
    for (Index i = 0; i < weight.inputs; ++i) {
        inputs.values[i] = rounded_to(type, read(x, row, i));
    }
    if (!is_grouped(weight)) return inputs;
    inputs.codes.resize(inputs.values.size());
    inputs.scales.resize(inputs.values.size() / kGroup);
    for (Index g = 0; g < num_groups(weight); ++g) {
        quantize_group(&inputs.values[g * kGroup], &inputs.codes[g * kGroup], inputs.scales[g]);
    }
    return inputs;
}

float dot_values(const Inputs& inputs, const Weight& weight, Index output) {
    float sum = 0;
    for (Index i = 0; i < weight.inputs; ++i) {
        sum = ::fmaf(inputs.values[i], value(weight, output, i), sum);
    }
    return sum;
}

float dot_groups(const Inputs& inputs, const Weight& weight, Index output) {
    float sum = 0;
    for (Index g = 0; g < num_groups(weight); ++g) {
        int dot = 0;
        for (Index i = g * kGroup; i < (g + 1) * kGroup; ++i) {
            dot += inputs.codes[i] * code(weight, output, i);
        }
        sum = ::fmaf(static_cast<float>(dot), scale(weight, output, g) * inputs.scales[g], sum);
    }
    return sum * unit_of(weight);
}

float output_of(const LinearArgs& args, const Inputs& inputs, Index output) {
    const float sum = is_grouped(args.weight) ? dot_groups(inputs, args.weight, output)
                                              : dot_values(inputs, args.weight, output);
    return args.bias.data ? sum + read(args.bias.data, args.bias.type, output) : sum;
}

// Gate and up are rounded as if they had been written.
float gated_output(const LinearArgs& args, const Inputs& inputs, Index output) {
    const Type type = args.out.type;
    const float gate = rounded_to(type, output_of(args, inputs, output));
    const float up = rounded_to(type, output_of(args, inputs, args.out.width + output));
    return gated(gate, up, args.activation, type);
}

}  // namespace

void linear(const LinearArgs& args, Pool& pool) {
    pool.run(args.x.count, 1, [&](Index begin, Index end, int) {
        for (Index t = begin; t < end; ++t) {
            const Inputs inputs = inputs_for(args.weight, args.x, t);
            for (Index o = 0; o < args.out.width; ++o) {
                write(args.out, t, o,
                      args.is_gated ? gated_output(args, inputs, o) : output_of(args, inputs, o));
            }
        }
    });
}

}  // namespace inferno::INFERNO_LEVEL
