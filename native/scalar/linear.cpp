// Linear layers, as plain loops.
#include <math.h>
#include <string.h>

#include <vector>

#include "contract/isa_functions.h"
#include "gated.h"
#include "packed.h"

namespace inferno::INFERNO_ISA {
namespace {

// A row as it is multiplied: floats, or a code for each value and a scale for each scale group. Where
// the row has a unit, scales are powers of two, and kept as exponents above it.
struct PackedRow {
    std::vector<float> values;
    std::vector<int> codes;
    std::vector<float> scales;
    std::vector<int> exponents;
    float unit = 1;
};

// Scale groups whose peak is less count as zeros: 127 / peak stays finite.
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
    for (Index i = 0; i < kScaleGroup; ++i) {
        is_finite = is_finite && values[i] - values[i] == 0.0f;
        peak = ::fmaxf(peak, ::fabsf(values[i]));
    }
    const float best = is_power ? power_of_two(peak / 127.0f) : peak / 127.0f;
    const float codes_of_one = is_power ? 1.0f / best : 127.0f / peak;
    const float inverse = is_finite && peak > kLeastPeak ? codes_of_one : 0.0f;
    scale = is_finite ? best : NAN;
    for (Index i = 0; i < kScaleGroup; ++i) {
        codes[i] = is_finite ? static_cast<int>(::nearbyintf(values[i] * inverse)) : 0;
    }
}

// Scales as exponents above a unit. If one is NaN, so is the unit.
void share_unit(PackedRow& inputs) {
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
        for (Index i = 0; i < kScaleGroup; ++i) inputs.codes[g * kScaleGroup + i] = 0;
    }
}

template <class Format>
PackedRow pack_row(const Weight& weight, const Rows& x, Index row) {
    PackedRow packed;
    packed.values.resize(round_up(weight.inputs, kScaleGroup));
    for (Index i = 0; i < weight.inputs; ++i) packed.values[i] = read(x, row, i);
    if constexpr (Format::kHasScales) {
        packed.codes.resize(packed.values.size());
        packed.scales.resize(packed.values.size() / kScaleGroup);
        for (Index g = 0; g < num_groups(weight); ++g) {
            quantize_group(&packed.values[g * kScaleGroup], Format::kHasRowUnit,
                           &packed.codes[g * kScaleGroup], packed.scales[g]);
        }
        if (Format::kHasRowUnit) share_unit(packed);
    } else {
        for (float& value : packed.values) value = rounded_to(Format::kType, value);
    }
    return packed;
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

template <class Format>
float dot_values(const PackedRow& x, const Weight& weight, Index output) {
    float sum = 0;
    for (Index i = 0; i < weight.inputs; ++i) {
        sum = ::fmaf(x.values[i], value<Format>(weight, output, i), sum);
    }
    return sum;
}

template <class Format>
float dot_groups(const PackedRow& x, const Weight& weight, Index output) {
    float sum = 0;
    for (Index g = 0; g < num_groups(weight); ++g) {
        constexpr Index kParts = Format::kHasHalves ? 2 : 1, kPart = kScaleGroup / kParts;
        int total = 0;
        for (Index begin = g * kScaleGroup; begin < (g + 1) * kScaleGroup; begin += kPart) {
            int dot = 0;
            for (Index i = begin; i < begin + kPart; ++i) {
                dot += x.codes[i] * whole<Format>(weight, output, i);
                total += x.codes[i];
            }
            const float factor = scale<Format>(weight, output, begin);
            sum = Format::kHasRowUnit
                      ? ::fmaf(raised(dot, x.exponents[g]), factor, sum)
                      : ::fmaf(static_cast<float>(dot), factor * x.scales[g], sum);
        }
        if constexpr (Format::kHasOffset) {
            const float scale =
                Format::kHasRowUnit ? ::ldexpf(1.0f, x.exponents[g]) : x.scales[g];
            const float of_codes = static_cast<float>(total) * scale;
            sum = ::fmaf(of_codes, offset<Format>(weight, output, g), sum);
        }
    }
    return sum * (Format::kUnit * x.unit);
}

template <class Format>
float output_of(const LinearArgs& args, const PackedRow& x, Index output) {
    float sum;
    if constexpr (Format::kHasScales) {
        sum = dot_groups<Format>(x, args.weight, output);
    } else {
        sum = dot_values<Format>(x, args.weight, output);
    }
    return args.bias.data ? sum + read(args.bias.data, args.bias.type, output) : sum;
}

// Gate and up are rounded as if they had been written.
template <class Format>
float gated_output(const LinearArgs& args, const PackedRow& x, Index output) {
    const Type type = args.out.type;
    const float gate = rounded_to(type, output_of<Format>(args, x, output));
    const float up = rounded_to(type, output_of<Format>(args, x, args.out.width + output));
    return gated(gate, up, args.activation, type);
}

template <class Format>
void multiply_row(const LinearArgs& args, Index t) {
    const PackedRow x = pack_row<Format>(args.weight, args.x, t);
    for (Index o = 0; o < args.out.width; ++o) {
        write(args.out, t, o,
              args.is_gated ? gated_output<Format>(args, x, o) : output_of<Format>(args, x, o));
    }
}

// Outputs from `first` on, as many as the weight has.
LinearArgs of_range(const LinearArgs& args, const Weight& weight, Index first) {
    LinearArgs part = {args.x, weight, args.bias, args.out};
    if (part.bias.data) {
        part.bias.data =
            static_cast<const char*>(part.bias.data) + first * size_of(part.bias.type);
    }
    part.out.data = static_cast<char*>(part.out.data) + first * size_of(part.out.type);
    part.out.width = weight.outputs;
    return part;
}

}  // namespace

void linear(const LinearArgs& args, Team& team) {
    for (Index r = 0, first = 0; r < args.num_ranges; first += args.ranges[r++].outputs) {
        linear(of_range(args, args.ranges[r], first), team);
    }
    if (args.ranges) return;
    with_packing(args.weight.packing, [&](auto format) {
        team.run(args.x.count, 1, [&](Index begin, Index end, int) {
            for (Index t = begin; t < end; ++t) multiply_row<decltype(format)>(args, t);
        });
    });
}

}  // namespace inferno::INFERNO_ISA
