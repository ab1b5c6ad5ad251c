// Quantization of weights, as plain loops: the specification of every level's.
#include "../kernels/families.h"
#include "../kernels/quantize_grid.h"
#include "packed.h"

namespace inferno::INFERNO_LEVEL {
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
    for (Index i = 0; i < kGroup; ++i) {
        if (group[i] - group[i] != 0.0f) return false;
    }
    return true;
}

float peak_of(const float* group) {
    float peak = 0.0f;
    for (Index i = 0; i < kGroup; ++i) {
        const float magnitude = group[i] < 0.0f ? -group[i] : group[i];
        if (magnitude > peak) peak = magnitude;
    }
    return peak;
}

// In units of the scale, whose inverse is given.
template <class Grid>
float squared_error(const float* group, float inverse) {
    float sum = 0.0f;
    for (Index i = 0; i < kGroup; ++i) {
        const float exact = group[i] * inverse;
        const float error = exact - clamped(to_whole(exact), Grid::kLowest, Grid::kHighest);
        sum += error * error;
    }
    return sum;
}

// The least squares' scale for the values that `scale` gives.
template <class Grid>
float fitted(const float* group, float scale) {
    const float inverse = 1.0f / scale;
    float product = 0.0f, squares = 0.0f;
    for (Index i = 0; i < kGroup; ++i) {
        const float value = clamped(to_whole(group[i] * inverse), Grid::kLowest, Grid::kHighest);
        product += group[i] * value;
        squares += value * value;
    }
    return rounded_to(Type::bf16, product / squares);
}

// The best scale so far; of equally good ones the first. Errors are relative to the group's peak,
// lest they underflow.
template <class Grid>
struct Best {
    const float* group;
    float peak_inverse;
    float error = HUGE_VALF;
    float scale = 0.0f;

    void offer(float other) {
        const float relative = other * peak_inverse;
        const float squared = squared_error<Grid>(group, 1.0f / other);
        const float other_error = squared * (relative * relative);
        if (other_error < error) {
            error = other_error;
            scale = other;
        }
    }
};

template <class Grid>
float best_scale(const float* group, float peak) {
    const float first = rounded_up_to_bf16(peak / Grid::kWidest);
    Best<Grid> best{group, 1.0f / peak};
    for (std::uint32_t n = 0; n < Grid::kNumScales; ++n) {
        const float scale = float_of(bits_of(first) + (n * Grid::kStride << 16));
        best.offer(scale);
        if (Grid::kNumSigns == 2) best.offer(-scale);
    }
    if (Grid::kStride > 1) best.offer(fitted<Grid>(group, best.scale));
    return best.scale;
}

// Returns the scale. What is not finite could not be seen in the codes, so the scale becomes NaN.
template <class Grid>
float quantize_group(const float* group, int* values) {
    const float peak = peak_of(group);
    const bool is_good = is_finite(group);
    const bool has_values = is_good && peak > kLeastWeight;
    const float scale = has_values ? best_scale<Grid>(group, peak) : is_good ? 0.0f : NAN;
    const float inverse = 1.0f / scale;
    for (Index i = 0; i < kGroup; ++i) {
        const float whole = has_values ? to_whole(group[i] * inverse) : 0.0f;
        values[i] = static_cast<int>(clamped(whole, Grid::kLowest, Grid::kHighest));
    }
    return scale;
}

void write_codes(const Weight& target, Index output, Index first, const int* values) {
    std::uint8_t* bytes = static_cast<std::uint8_t*>(const_cast<void*>(target.data));
    const Index groups = num_groups(target);
    if (target.packing == Packing::int8) {
        for (Index i = 0; i < kGroup; ++i) {
            bytes[place(output, groups * 8, first + i, 4)] =
                static_cast<std::uint8_t>(values[i] + Int8Grid::kOffset);
        }
        return;
    }
    for (Index i = 0; i < kGroup / 2; ++i) {
        const Index low = i / 4 * 8 + i % 4;
        bytes[place(output, groups * 4, first / 2 + i, 4)] = static_cast<std::uint8_t>(
            (values[low] + Int4Grid::kOffset) | (values[low + 4] + Int4Grid::kOffset) << 4);
    }
}

// Row `row` of the source; beyond its last there are zeros.
void quantize_row(const Rows& source, Index row, const Weight& target, Index output) {
    for (Index g = 0; g < num_groups(target); ++g) {
        float group[kGroup] = {};
        for (Index i = 0; i < kGroup; ++i) {
            const Index input = g * kGroup + i;
            if (row < source.count && input < source.width) group[i] = read(source, row, input);
        }
        int values[kGroup];
        const float scale = target.packing == Packing::int8
                                ? quantize_group<Int8Grid>(group, values)
                                : quantize_group<Int4Grid>(group, values);
        write_codes(target, output, g * kGroup, values);
        write(const_cast<void*>(target.scales), Type::bf16,
              place(output, num_groups(target), g, 1), scale);
    }
}

}  // namespace

void quantize(const Rows& source, std::int64_t first, const Weight& target, Team& team) {
    const Index num_rows = round_up(source.count, kPanel);
    team.run(num_rows, kPanel, [&](Index begin, Index end, int) {
        for (Index row = begin; row < end; ++row) quantize_row(source, row, target, first + row);
    });
}

}  // namespace inferno::INFERNO_LEVEL
