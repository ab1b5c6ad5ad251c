// Single elements of any type, read as float32 and written back rounded to nearest, ties to even.
#pragma once

#include <cstdint>
#include <cstring>

#include "contract/kernels.h"

namespace inferno {
namespace {

inline float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline std::uint16_t to_bf16(float value) {
    const std::uint32_t bits = bits_of(value);
    if (value != value) return 0x7fc0;
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// float16: 5 bits of exponent, 10 of fraction; denormals count in steps of 2^-24.
inline float from_f16(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    if (rest >= 0x0400) return float_of(sign | ((rest << 13) + (112u << 23)));
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

inline std::uint16_t to_f16(float value) {
    const std::uint32_t sign = bits_of(value) >> 16 & 0x8000u;
    const std::uint32_t rest = bits_of(value) & 0x7fffffffu;
    std::uint32_t half;
    if (rest > 0x7f800000u) {
        half = 0x7e00;
    } else if (rest >= 0x477ff000u) {  // 65520 and more
        half = 0x7c00;
    } else if (rest < 0x38800000u) {  // below 2^-14: adding 1/2 rounds to multiples of 2^-24
        half = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
    } else {
        half = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
}

inline float read(const void* data, Type type, std::int64_t i) {
    switch (type) {
        case Type::f32: return static_cast<const float*>(data)[i];
        case Type::f16: return from_f16(static_cast<const std::uint16_t*>(data)[i]);
        case Type::i8: return static_cast<const std::int8_t*>(data)[i];
        default: return float_of(std::uint32_t{static_cast<const std::uint16_t*>(data)[i]} << 16);
    }
}

inline float rounded_to(Type type, float value) {
    return type == Type::bf16 ? float_of(std::uint32_t{to_bf16(value)} << 16) : value;
}

inline void write(void* data, Type type, std::int64_t i, float value) {
    switch (type) {
        case Type::f32: static_cast<float*>(data)[i] = value; break;
        case Type::f16: static_cast<std::uint16_t*>(data)[i] = to_f16(value); break;
        case Type::i8: static_cast<std::int8_t*>(data)[i] = static_cast<std::int8_t>(value); break;
        default: static_cast<std::uint16_t*>(data)[i] = to_bf16(value);
    }
}

inline float read(const Rows& rows, std::int64_t t, std::int64_t i) {
    return read(rows.data, rows.type, t * rows.stride + i);
}

inline void write(const Rows& rows, std::int64_t t, std::int64_t i, float value) {
    write(rows.data, rows.type, t * rows.stride + i, value);
}

// The i'th weight, or 1 where there are none.
inline float weight_at(const Optional& weights, std::int64_t i) {
    return weights.data ? read(weights.data, weights.type, i) : 1.0f;
}

}  // namespace
}  // namespace inferno
