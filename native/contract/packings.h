// How weights are packed: the traits of every format. Kernels are written over these traits, and
// nothing else asks which format a weight has. A new format with codes of 4 or 8 bits is a struct
// and a line of the list here, and how a checkpoint stores it (kernels/linear/pack.cpp), where one
// does. Other widths also change where codes are put and taken: place_codes there, Codes in
// kernels/linear/codes.h, scalar/packed.h and ops/reference/stored.py.
#pragma once

#include <cstdint>

#include "types.h"

namespace inferno {

// Outputs come in panels of 16, so that a vector register holds one input's (or two's, or four's)
// weights of 16 outputs; the last panel is filled up with zeros.
constexpr std::int64_t kPanel = 16;
// Inputs that share a scale, in weights that have scales and in the activations beside them.
constexpr std::int64_t kScaleGroup = 32;

enum class ScaleType {
    none,
    bf16,  // not float16: its range is that of the weights, and codes make good what it rounds away
    e8m0,  // a power of two: 2^(byte - 127); 255 is NaN
};

// Scale groups whose peak is less are quantized to zeros, so that 1 / scale is finite.
constexpr float kLeastWeight = 1e-30f;

// Floats as they are: [O/16][I/U][16][U] of type kType, where U is kInputUnit. Inputs are filled up
// with zeros to a multiple of it. Activations beside them are rounded to the same type.
struct FloatPacking {
    static constexpr bool kHasScales = false;
    static constexpr std::int64_t kStoredBytes = 0;
    static constexpr bool kIsQuantized = false;
    static constexpr bool kHasRowUnit = false;
    static constexpr ScaleType kScaleType = ScaleType::none;
};

struct F32Packing : FloatPacking {
    static constexpr Type kType = Type::f32;
    static constexpr int kBits = 32;
    static constexpr std::int64_t kInputUnit = 1;
};

struct Bf16Packing : FloatPacking {
    static constexpr Type kType = Type::bf16;
    static constexpr int kBits = 16;
    static constexpr std::int64_t kInputUnit = 2;
};

// Codes in scale groups: G of them, the last filled up with zeros. Scales are [O/16][G][16].
//
//   kBits 8  [O/16][G][8][16][4]  byte (s, lane, c) of a scale group is input 4s + c
//   kBits 4  [O/16][G][4][16][4]  byte (s, lane, c) holds input 8s + c in its low four bits and
//                                 8s + 4 + c in its high ones
//
// A value is whole * kUnit * scale. Its whole number is code - kZeroPoint, or what the codebook has
// for the code. Tiles multiply whole + kZeroPoint, an unsigned byte of kLargestByte at most.
struct CodePacking {
    static constexpr bool kHasScales = true;
    static constexpr std::int64_t kInputUnit = kScaleGroup;
    static constexpr float kUnit = 1.0f;
    static constexpr bool kHasCodebook = false;
    // Bytes of a scale group's codes in a checkpoint; 0 where checkpoints don't store it.
    static constexpr std::int64_t kStoredBytes = 0;
    // Whether floats can be quantized to it here (kernels/linear/quantize.cpp). Then it also says
    // which scales are tried for a scale group: the first is peak / kWidest rounded up to a
    // bfloat16, the peak being the largest magnitude; each next one of kNumScales is kStride
    // bfloat16 numbers above the last; each has kNumSigns signs. Whole numbers go from kLowest to
    // kHighest.
    static constexpr bool kIsQuantized = false;
    // Whether the scales of a row of activations are powers of two, kept as exponents above a unit
    // of the row: to apply one, its exponent is added, while the processor's multipliers do
    // something else (397 GOP/s a core instead of 367). That errs by twice as much as the best
    // scale at most, for which weights of 8 bits have no room.
    static constexpr bool kHasRowUnit = false;
};

struct Int8Packing : CodePacking {
    static constexpr int kBits = 8;
    static constexpr int kZeroPoint = 128;
    static constexpr int kLargestByte = 255;
    static constexpr ScaleType kScaleType = ScaleType::bf16;

    static constexpr bool kIsQuantized = true;
    static constexpr float kWidest = 127.5f;  // the peak is half a step off at most
    static constexpr int kNumScales = 16;
    static constexpr int kStride = 1;
    static constexpr int kNumSigns = 1;
    static constexpr float kLowest = -127.0f;
    static constexpr float kHighest = 127.0f;
};

struct Int4Packing : CodePacking {
    static constexpr int kBits = 4;
    static constexpr int kZeroPoint = 8;
    static constexpr int kLargestByte = 15;
    static constexpr ScaleType kScaleType = ScaleType::bf16;
    static constexpr bool kHasRowUnit = true;  // weights err by 16 times as much

    // It can pay to cut the peak off, by a seventh of it at most, or not to use the largest number.
    // Numbers reach farther down than up, so the peak is tried at either end: hence two signs.
    static constexpr bool kIsQuantized = true;
    static constexpr float kWidest = 9.25f;
    static constexpr int kNumScales = 14;
    static constexpr int kStride = 6;
    static constexpr int kNumSigns = 2;
    static constexpr float kLowest = -8.0f;
    static constexpr float kHighest = 7.0f;
};

// The OCP microscaling format: E2M1 elements, doubled in the codebook to be whole.
struct Mxfp4Packing : CodePacking {
    static constexpr int kBits = 4;
    static constexpr int kZeroPoint = 12;
    static constexpr int kLargestByte = 24;
    static constexpr ScaleType kScaleType = ScaleType::e8m0;
    static constexpr float kUnit = 0.5f;
    static constexpr std::int64_t kStoredBytes = 16;
    static constexpr bool kHasCodebook = true;
    static constexpr int kCodebook[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
};

// Every packing: its name, the number by which Python names it, its traits.
#define INFERNO_PACKINGS(PACKING)  \
    PACKING(f32, 0, F32Packing)    \
    PACKING(bf16, 1, Bf16Packing)  \
    PACKING(int8, 2, Int8Packing)  \
    PACKING(int4, 3, Int4Packing)  \
    PACKING(mxfp4, 4, Mxfp4Packing)

enum class Packing : std::int32_t {
#define INFERNO_ENUMERATOR(name, number, Traits) name = number,
    INFERNO_PACKINGS(INFERNO_ENUMERATOR)
#undef INFERNO_ENUMERATOR
};

// A weight [O, I].
struct Weight {
    Packing packing;
    const void* data;    // aligned to 64 bytes
    const void* scales;  // null for floats
    std::int64_t outputs;
    std::int64_t inputs;
};

// Unnamed, because each isa compiles them for itself (simd/lanes.h).
namespace {

// Call `f` with the traits of a packing, and return what it returns.
template <class Function>
inline auto with_packing(Packing packing, Function&& f) {
    switch (packing) {
#define INFERNO_CASE(name, number, Traits) \
    case Packing::name:                    \
        return f(Traits{});
        INFERNO_PACKINGS(INFERNO_CASE)
#undef INFERNO_CASE
    }
    __builtin_unreachable();
}

inline bool is_packing(int number) {
#define INFERNO_IS(name, its_number, Traits) number == its_number ||
    return INFERNO_PACKINGS(INFERNO_IS) false;
#undef INFERNO_IS
}

inline bool is_quantized(Packing packing) {
    return with_packing(packing, [](auto format) { return decltype(format)::kIsQuantized; });
}

inline std::int64_t num_panels(const Weight& weight) {
    return round_up(weight.outputs, kPanel) / kPanel;
}

inline std::int64_t num_scale_groups(std::int64_t inputs) {
    return round_up(inputs, kScaleGroup) / kScaleGroup;
}

constexpr std::int64_t size_of(ScaleType type) {
    return type == ScaleType::none ? 0 : type == ScaleType::bf16 ? 2 : 1;
}

// Bytes of one panel's floats or codes, and of its scales.
inline std::int64_t panel_bytes(const Weight& weight) {
    return with_packing(weight.packing, [&](auto format) {
        using Format = decltype(format);
        return round_up(weight.inputs, Format::kInputUnit) * kPanel * Format::kBits / 8;
    });
}

inline std::int64_t panel_scale_bytes(const Weight& weight) {
    return with_packing(weight.packing, [&](auto format) {
        return num_scale_groups(weight.inputs) * kPanel * size_of(decltype(format)::kScaleType);
    });
}

}  // namespace
}  // namespace inferno
