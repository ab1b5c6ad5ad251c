// Linear layers, as plain loops.
#include <math.h>
#include <string.h>

#include <vector>

#include "../kernels/families.h"
#include "gated.h"
#include "packed.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// A row as it is multiplied: floats, or a code for each value and a scale for each group. Beside
// int4 scales are powers of two, and kept as exponents above a unit.
struct Inputs {
    std::vector<float> values;
    std::vector<int> codes;
    std::vector<float> scales;
    std::vector<int> exponents;
    float unit = 1;
};

// Groups below this peak count as zeros: 127 / peak stays finite.
constexpr float kLeastPeak = 1e-30f;
// Powers of two below a row's largest scale: what is smaller counts as zero.
constexpr int kScaleRange = 48;
constexpr int kLeastUnit = -126;

// The least power of two that is at least x; 0 stays what it is.
float power_of_two(float x) {
    int exponent;
    return ::frexpf(x, &exponent) == 0.5f ? x : x == 0 ? 0 : ::ldexpf(1.0f, exponent);
}

void quantize_group(const float* values, bool is_power, int* codes, float& scale) {
    float peak = 0;
    bool is_finite = true;
    for (Index i = 0; i < kGroup; ++i) {
        is_finite = is_finite && values[i] - values[i] == 0.0f;
        peak = ::fmaxf(peak, ::fabsf(values[i]));
    }
    const float best = is_power ? power_of_two(peak / 127.0f) : peak / 127.0f;
    const float codes_of_one = is_power ? 1.0f / best : 127.0f / peak;
    const float inverse = is_finite && peak > kLeastPeak ? codes_of_one : 0.0f;
    scale = is_finite ? best : NAN;
    for (Index i = 0; i < kGroup; ++i) {
        codes[i] = is_finite ? static_cast<int>(::nearbyintf(values[i] * inverse)) : 0;
    }
}

// Scales as exponents above a unit. If one is NaN, so is the unit.
void share_unit(Inputs& inputs) {
    inputs.exponents.assign(inputs.scales.size(), 0);
    float most = 0;
    for (const float scale : inputs.scales) {
        if (scale != scale) return static_cast<void>(inputs.unit = NAN);
        most = ::fmaxf(most, scale);
    }
    const int highest = most > 0 ? ::ilogbf(most) - kScaleRange : kLeastUnit;
    const int unit = highest > kLeastUnit ? highest : kLeastUnit;
    inputs.unit = ::ldexpf(1.0f, unit);
    for (std::size_t g = 0; g < inputs.scales.size(); ++g) {
        const int above = inputs.scales[g] > 0 ? ::ilogbf(inputs.scales[g]) - unit : -1;
        if (above >= 0) {
            inputs.exponents[g] = above;
            continue;
        }
        for (Index i = 0; i < kGroup; ++i) inputs.codes[g * kGroup + i] = 0;
    }
}

Inputs inputs_for(const Weight& weight, const Rows& x, Index row) {
    const Type type = weight.packing == Packing::bf16 ? Type::bf16 : Type::f32;
    const bool is_power = weight.packing == Packing::int4;
    Inputs inputs;
    inputs.values.resize(round_up(weight.inputs, kGroup));
    for (Index i = 0; i < weight.inputs; ++i) {
        inputs.values[i] = rounded_to(type, read(x, row, i));
    }
    if (!is_grouped(weight)) return inputs;
    inputs.codes.resize(inputs.values.size());
    inputs.scales.resize(inputs.values.size() / kGroup);
    for (Index g = 0; g < num_groups(weight); ++g) {
        quantize_group(&inputs.values[g * kGroup], is_power, &inputs.codes[g * kGroup],
                       inputs.scales[g]);
    }
    if (is_power) share_unit(inputs);
    return inputs;
}

float dot_values(const Inputs& inputs, const Weight& weight, Index output) {
    float sum = 0;
    for (Index i = 0; i < weight.inputs; ++i) {
        sum = ::fmaf(inputs.values[i], value(weight, output, i), sum);
    }
    return sum;
}

// dot * 2^exponent by its bits, which makes 2^(exponent - 127) of 0: nothing to any sum.
float raised(int dot, int exponent) {
    const float x = static_cast<float>(dot);
    std::int32_t bits;
    ::memcpy(&bits, &x, sizeof bits);
    bits += exponent * (1 << 23);
    float result;
    ::memcpy(&result, &bits, sizeof result);
    return result;
}

float dot_groups(const Inputs& inputs, const Weight& weight, Index output) {
    float sum = 0;
    for (Index g = 0; g < num_groups(weight); ++g) {
        int dot = 0;
        for (Index i = g * kGroup; i < (g + 1) * kGroup; ++i) {
            dot += inputs.codes[i] * code(weight, output, i);
        }
        const float factor = scale(weight, output, g);
        sum = weight.packing == Packing::int4
                  ? ::fmaf(raised(dot, inputs.exponents[g]), factor, sum)
                  : ::fmaf(static_cast<float>(dot), factor * inputs.scales[g], sum);
    }
    return sum * (unit_of(weight) * inputs.unit);
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

void linear(const LinearArgs& args, Team& team) {
    team.run(args.x.count, 1, [&](Index begin, Index end, int) {
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
