// A row of activations as the tiles read it, quantized where the weight is.
//
// It becomes words of 4 bytes, one for each weight vector it meets: a float, two bfloat16, or four
// int8. A group of 32 int8 has two more: what undoes the weights' offset, and the scale.
#pragma once

#include "../simd/elements.h"

namespace inferno {
namespace {

constexpr Index kGroupWords = 10;   // 8 of codes, then:
constexpr Index kGroupStart = 8;    // -offset * (sum of codes), which the int32 dots start from
constexpr Index kGroupScale = 9;    // float32
constexpr float kLeastPeak = 1e-30f;  // groups below this count as zeros: 127 / peak stays finite

inline Index num_groups(const Weight& weight) {
    return (weight.inputs + kGroup - 1) / kGroup;
}

inline Index row_words(const Weight& weight) {
    switch (weight.packing) {
        case Packing::f32: return weight.inputs;
        case Packing::bf16: return (weight.inputs + 1) / 2;
        default: return num_groups(weight) * kGroupWords;
    }
}

// What a weight's codes exceed its values by, so that they are unsigned bytes. E2M1 values are
// doubled to be whole: -12 to 12.
inline int code_offset(Packing packing) {
    return packing == Packing::int8 ? 128 : packing == Packing::int4 ? 8 : 12;
}

inline F magnitude(F a) { return as_float(bit_and(as_int(a), splat_int(0x7fffffff))); }

// Not-finite values leave no trace in the codes, so the scale becomes NaN.
inline void quantize_group(F low, F high, int offset, std::uint32_t* words) {
    const float peak = largest(max(magnitude(low), magnitude(high)));
    const F inverse = splat(peak > kLeastPeak ? 127.0f / peak : 0.0f);
    low = round(mul(low, inverse));
    high = round(mul(high, inverse));
    const float total = sum(add(low, high));
    const bool is_finite = total == total;
    store_i8(reinterpret_cast<std::int8_t*>(words), to_int(low));
    store_i8(reinterpret_cast<std::int8_t*>(words + 4), to_int(high));
    const std::int32_t start = is_finite ? -offset * static_cast<std::int32_t>(total) : 0;
    const float scale = is_finite ? peak / 127.0f : __builtin_nanf("");
    __builtin_memcpy(words + kGroupStart, &start, 4);
    __builtin_memcpy(words + kGroupScale, &scale, 4);
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
inline void write_groups(const typename X::Raw* x, Index width, int offset, std::uint32_t* words) {
    for (Index i = 0; i < width; i += kGroup, words += kGroupWords) {
        const F high = i + 16 < width ? load_part<X>(x, i + 16, width) : zero();
        quantize_group(load_part<X>(x, i, width), high, offset, words);
    }
}

// A row of x as words.
inline void write_words(const Rows& x, Index row, const Weight& weight, std::uint32_t* words) {
    with_activation_type(x.type, [&](auto type) {
        using X = decltype(type);
        const auto* data = static_cast<const typename X::Raw*>(x.data) + row * x.stride;
        switch (weight.packing) {
            case Packing::f32: return write_floats<X>(data, weight.inputs, words);
            case Packing::bf16: return write_pairs<X>(data, weight.inputs, words);
            default: write_groups<X>(data, weight.inputs, code_offset(weight.packing), words);
        }
    });
}

}  // namespace
}  // namespace inferno
