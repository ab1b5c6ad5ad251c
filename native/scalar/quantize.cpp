// Quantization of weights, as plain loops: the specification of every isa's.
//
// A scale group takes the scale that leaves the smallest squared error, and it is found by trying
// (contract/packings.h says which). Values round up or down at other places for each scale, so errors
// differ widely even between neighbours: of int8's 16 the best leaves a fifth less than the first.
// That is far more than rounding the scale to bfloat16 costs. Where scales are left out, the last to
// be tried is the one that is best for the values found so far: weights that were multiples of a
// scale from the start stay what they are.
#include "contract/isa_functions.h"
#include "packed.h"

namespace inferno::INFERNO_ISA {
namespace {

float clamped(float x, float lowest, float highest) {
    return x < lowest ? lowest : x > highest ? highest : x;
}

float to_whole(float x) {  // nearest, ties to even, for magnitudes below 2^22
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

float rounded_up_to_bf16(float positive) {
    return float_of((bits_of(positive) + 0xffff) & 0xffff0000u);
}

bool is_finite(const float* group) {
    for (Index i = 0; i < kScaleGroup; ++i) {
        if (group[i] - group[i] != 0.0f) return false;
    }
    return true;
}

float peak_of(const float* group) {
    float peak = 0.0f;
    for (Index i = 0; i < kScaleGroup; ++i) {
        const float magnitude = group[i] < 0.0f ? -group[i] : group[i];
        if (magnitude > peak) peak = magnitude;
    }
    return peak;
}

// In units of the scale, whose inverse is given.
template <class Format>
float squared_error(const float* group, float inverse) {
    float sum = 0.0f;
    for (Index i = 0; i < kScaleGroup; ++i) {
        const float exact = group[i] * inverse;
        const float error = exact - clamped(to_whole(exact), Format::kLowest, Format::kHighest);
        sum += error * error;
    }
    return sum;
}

// The least squares' scale for the values that `scale` gives.
template <class Format>
float fitted(const float* group, float scale) {
    const float inverse = 1.0f / scale;
    float product = 0.0f, squares = 0.0f;
    for (Index i = 0; i < kScaleGroup; ++i) {
        const float value = clamped(to_whole(group[i] * inverse), Format::kLowest, Format::kHighest);
        product += group[i] * value;
        squares += value * value;
    }
    return rounded_to(Type::bf16, product / squares);
}

// The best scale so far; of equally good ones the first. Errors are relative to the group's peak,
// lest they underflow.
template <class Format>
struct Best {
    const float* group;
    float peak_inverse;
    float error = HUGE_VALF;
    float scale = 0.0f;

    void offer(float other) {
        const float relative = other * peak_inverse;
        const float squared = squared_error<Format>(group, 1.0f / other);
        const float other_error = squared * (relative * relative);
        if (other_error < error) {
            error = other_error;
            scale = other;
        }
    }
};

template <class Format>
float best_scale(const float* group, float peak) {
    const float first = rounded_up_to_bf16(peak / Format::kWidest);
    Best<Format> best{group, 1.0f / peak};
    for (std::uint32_t n = 0; n < Format::kNumScales; ++n) {
        const float scale = float_of(bits_of(first) + (n * Format::kStride << 16));
        best.offer(scale);
        if (Format::kNumSigns == 2) best.offer(-scale);
    }
    if (Format::kStride > 1) best.offer(fitted<Format>(group, best.scale));
    return best.scale;
}

// Returns the scale. What is not finite could not be seen in the codes, so the scale becomes NaN.
template <class Format>
float quantize_group(const float* group, int* values) {
    const float peak = peak_of(group);
    const bool is_good = is_finite(group);
    const bool has_values = is_good && peak > kLeastWeight;
    const float scale = has_values ? best_scale<Format>(group, peak) : is_good ? 0.0f : NAN;
    const float inverse = 1.0f / scale;
    for (Index i = 0; i < kScaleGroup; ++i) {
        const float whole = has_values ? to_whole(group[i] * inverse) : 0.0f;
        values[i] = static_cast<int>(clamped(whole, Format::kLowest, Format::kHighest));
    }
    return scale;
}

template <class Format>
void write_codes(const Weight& target, Index output, Index first, const int* values) {
    std::uint8_t* bytes = static_cast<std::uint8_t*>(const_cast<void*>(target.data));
    for (Index i = 0; i < kScaleGroup; ++i) {
        const CodePlace at = code_place<Format>(target, output, first + i);
        const int code = (values[i] + Format::kZeroPoint) << at.shift;
        const int others = at.shift == 0 ? 0 : bytes[at.byte];  // written before
        bytes[at.byte] = static_cast<std::uint8_t>(others | code);
    }
}

// Row `row` of the source; beyond its last there are zeros.
template <class Format>
void quantize_row(const Rows& source, Index row, const Weight& target, Index output) {
    static_assert(Format::kScaleType == ScaleType::bf16);
    for (Index g = 0; g < num_groups(target); ++g) {
        float group[kScaleGroup] = {};
        for (Index i = 0; i < kScaleGroup; ++i) {
            const Index input = g * kScaleGroup + i;
            if (row < source.count && input < source.width) group[i] = read(source, row, input);
        }
        int values[kScaleGroup];
        const float scale = quantize_group<Format>(group, values);
        write_codes<Format>(target, output, g * kScaleGroup, values);
        write(const_cast<void*>(target.scales), Type::bf16,
              place(output, num_groups(target), g, 1), scale);
    }
}

template <class Format>
void quantize_rows(const Rows& source, Index first, const Weight& target, Team& team) {
    team.run(round_up(source.count, kPanel), kPanel, [&](Index begin, Index end, int) {
        for (Index row = begin; row < end; ++row) {
            quantize_row<Format>(source, row, target, first + row);
        }
    });
}

}  // namespace

void quantize(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    with_packing(target.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Format::kIsQuantized) quantize_rows<Format>(source, first, target, team);
    });
}

}  // namespace inferno::INFERNO_ISA
