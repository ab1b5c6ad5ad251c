// A row of activations as the tiles read it, quantized where the weight is.
//
// It becomes words of 4 bytes, one for each weight vector it meets: a float, two bfloat16, or four
// int8. A group of 32 int8 has two more: what undoes the weights' offset, and the scale.
//
// Beside weights of int4 scales are powers of two: to apply one, its exponent is added, while the
// processor's multipliers do something else. That errs by twice as much as the best scale at most,
// where the weights err by 16 times as much. The row's last word then has the unit of its scales.
#pragma once

#include "../simd/elements.h"

namespace inferno {
namespace {

constexpr Index kGroupWords = 10;   // 8 of codes, then:
constexpr Index kGroupStart = 8;    // -offset * (sum of codes), which the int32 dots start from
constexpr Index kGroupScale = 9;    // float32; beside int4 what is added to the bits of floats
constexpr float kLeastPeak = 1e-30f;  // groups below this count as zeros: 127 / peak stays finite

constexpr std::uint32_t kExponent = 1 << 23;  // added to a float's bits: twice the number
// Powers of two below a row's largest scale: what is smaller counts as zero.
constexpr std::uint32_t kScaleRange = 48;

inline Index num_groups(const Weight& weight) {
    return (weight.inputs + kGroup - 1) / kGroup;
}

inline Index row_words(const Weight& weight) {
    switch (weight.packing) {
        case Packing::f32: return weight.inputs;
        case Packing::bf16: return (weight.inputs + 1) / 2;
        case Packing::int4: return num_groups(weight) * kGroupWords + 1;
        default: return num_groups(weight) * kGroupWords;
    }
}

// What a weight's codes exceed its values by, so that they are unsigned bytes. E2M1 values are
// doubled to be whole: -12 to 12.
inline int code_offset(Packing packing) {
    return packing == Packing::int8 ? 128 : packing == Packing::int4 ? 8 : 12;
}

inline F magnitude(F a) { return as_float(bit_and(as_int(a), splat_int(0x7fffffff))); }

inline float float_of(std::uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

// The least power of two that is at least x, which is 0 or normal; 0 stays what it is.
inline float power_of_two(float x) {
    return float_of((bits_of(x) + (kExponent - 1)) & ~(kExponent - 1));
}

// Not-finite values leave no trace in the codes, so the scale becomes NaN.
inline void quantize_group(F low, F high, Packing packing, std::uint32_t* words) {
    const float peak = largest(max(magnitude(low), magnitude(high)));
    const bool is_power = packing == Packing::int4;
    const float best = is_power ? power_of_two(peak / 127.0f) : peak / 127.0f;
    const float codes_of_one = is_power ? 1.0f / best : 127.0f / peak;
    const F inverse = splat(peak > kLeastPeak ? codes_of_one : 0.0f);
    low = round(mul(low, inverse));
    high = round(mul(high, inverse));
    const float total = sum(add(low, high));
    const bool is_finite = total == total;
    store_i8(reinterpret_cast<std::int8_t*>(words), to_int(low));
    store_i8(reinterpret_cast<std::int8_t*>(words + 4), to_int(high));
    const int offset = code_offset(packing);
    const std::int32_t start = is_finite ? -offset * static_cast<std::int32_t>(total) : 0;
    const float scale = is_finite ? best : __builtin_nanf("");
    __builtin_memcpy(words + kGroupStart, &start, 4);
    words[kGroupScale] = bits_of(scale);
}

// A row's scales as exponents above its unit, which becomes its last word; NaN if one is NaN.
inline void share_unit(std::uint32_t* words, Index num_groups) {
    std::uint32_t* const end = words + num_groups * kGroupWords;
    std::uint32_t most = 0;  // positive floats are ordered as their bits are, NaN last
    for (std::uint32_t* group = words; group < end; group += kGroupWords) {
        if (group[kGroupScale] > most) most = group[kGroupScale];
    }
    const std::uint32_t range = kScaleRange * kExponent;
    const std::uint32_t unit = most > range + kExponent ? most - range : kExponent;
    for (std::uint32_t* group = words; group < end; group += kGroupWords) {
        const std::uint32_t scale = group[kGroupScale];
        if (scale < unit) __builtin_memset(group, 0, kGroupWords * sizeof *group);
        group[kGroupScale] = scale < unit ? 0 : scale - unit;
    }
    const bool is_finite = float_of(most) == float_of(most);
    *end = is_finite ? unit : most;
}

template <class X>
inline void write_floats(const typename X::Raw* x, Index width, std::uint32_t* words) {
    for (Index i = 0; i < width; i += 16) {
        store_part<F32>(reinterpret_cast<float*>(words), i, width, load_part<X>(x, i, width));
    }
}

template <class X>
inline void write_pairs(const typename X::Raw* x, Index width, std::uint32_t* words) {
    if (width % 2 != 0) words[width / 2] = 0;
    for (Index i = 0; i < width; i += 16) {
        store_part<BF16>(reinterpret_cast<std::uint16_t*>(words), i, width,
                         load_part<X>(x, i, width));
    }
}

template <class X>
inline void write_groups(const typename X::Raw* x, const Weight& weight, std::uint32_t* words) {
    const Index width = weight.inputs;
    std::uint32_t* group = words;
    for (Index i = 0; i < width; i += kGroup, group += kGroupWords) {
        const F high = i + 16 < width ? load_part<X>(x, i + 16, width) : zero();
        quantize_group(load_part<X>(x, i, width), high, weight.packing, group);
    }
    if (weight.packing == Packing::int4) share_unit(words, num_groups(weight));
}

// A row of x as words.
inline void write_words(const Rows& x, Index row, const Weight& weight, std::uint32_t* words) {
    with_activation_type(x.type, [&](auto type) {
        using X = decltype(type);
        const auto* data = static_cast<const typename X::Raw*>(x.data) + row * x.stride;
        switch (weight.packing) {
            case Packing::f32: return write_floats<X>(data, weight.inputs, words);
            case Packing::bf16: return write_pairs<X>(data, weight.inputs, words);
            default: write_groups<X>(data, weight, words);
        }
    });
}

}  // namespace
}  // namespace inferno
