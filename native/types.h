// The data that kernels work on: plain pointers, sizes and strides, as Python hands them over.
#pragma once

#include <cstdint>

namespace inferno {

// How an element lies in memory.
enum class Type : std::int32_t { f32 = 0, bf16 = 1, f16 = 2, i8 = 3, i64 = 4 };

inline std::int64_t size_of(Type type) {
    switch (type) {
        case Type::f32: return 4;
        case Type::i8: return 1;
        case Type::i64: return 8;
        default: return 2;
    }
}

// Rows of elements that lie side by side; `stride` counts elements from one row to the next.
struct Rows {
    void* data;
    Type type;
    std::int64_t count;
    std::int64_t width;
    std::int64_t stride;
};

// How a weight [O, I] is packed. Outputs come in panels of 16, so that a vector register holds one
// input's (or two's, or four's) weights of 16 outputs; the last panel is filled up with zeros.
//
//   f32    [O/16][I][16]           float
//   bf16   [O/16][I/2][16][2]      bfloat16; an odd I is filled up with zeros
//   int8   [O/16][G][8][16][4]     byte = value + 128;  scales [O/16][G][16] bfloat16
//   int4   [O/16][G][4][16][4]     two values a byte;   scales [O/16][G][16] bfloat16
//   mxfp4  as int4, with E2M1 codes;                    scales [O/16][G][16] E8M0
//
// G counts groups of 32 inputs, the last filled up with zeros. In int8 byte (s, lane, c) of a group
// is input 4s + c. In int4 byte (s, lane, c) holds input 8s + c in its low four bits and 8s + 4 + c
// in its high ones, each as value + 8. A value is (code - offset) * scale. Scales are bfloat16, not float16: their range
// is that of the weights, and what is rounded away is made good by the codes.
enum class Packing : std::int32_t { f32 = 0, bf16 = 1, int8 = 2, int4 = 3, mxfp4 = 4 };

constexpr std::int64_t kPanel = 16;
constexpr std::int64_t kGroup = 32;

struct Weight {
    Packing packing;
    const void* data;    // aligned to 64 bytes
    const void* scales;  // null for f32 and bf16
    std::int64_t outputs;
    std::int64_t inputs;
};

inline std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// Bytes of one panel's codes.
inline std::int64_t panel_bytes(const Weight& w) {
    switch (w.packing) {
        case Packing::f32: return w.inputs * kPanel * 4;
        case Packing::bf16: return round_up(w.inputs, 2) * kPanel * 2;
        case Packing::int8: return round_up(w.inputs, kGroup) * kPanel;
        default: return round_up(w.inputs, kGroup) * kPanel / 2;
    }
}

}  // namespace inferno
