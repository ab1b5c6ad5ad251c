// How weights are packed: the traits of every format. Kernels are written over these traits, and
// nothing else asks which format a weight has. A new format with codes of 4, 5, 6 or 8 bits is a
// struct and a line of the list here, and how a checkpoint stores it (kernels/linear/stored.h),
// where one does. Other widths, and other scales, also change where they are put and taken:
// kernels/linear/pack.cpp, Codes and Scales in kernels/linear/codes.h, scalar/packed.h and
// ops/reference/stored.py.
#pragma once

#include <cstdint>

#include "types.h"

namespace inferno {

// Outputs come in panels of 16, so that a vector register holds one input's (or two's, or four's)
// weights of 16 outputs; the last panel is filled up with zeros.
constexpr std::int64_t kPanel = 16;
// Inputs that share a scale, in weights that have scales and in the activations beside them.
constexpr std::int64_t kScaleGroup = 32;

// The scales of a scale group's whole numbers. An offset is added to each scaled number.
enum class ScaleType {
    none,
    bf16,  // not float16: its range is that of the weights, and codes make good what it rounds away
    e8m0,  // a power of two: 2^(byte - 127); 255 is NaN
    f16,
    f16_offset,  // a float16 scale, and a float16 offset
    // Of eight scale groups together: a float16 unit of scales and one of offsets, and for each
    // group six bits that multiply the one and six that multiply the other.
    six_bit_offset,
    // Likewise: a float16 unit, and for each half of a group an int8 that multiplies it.
    halves,
    // What a product over many rows makes of the last two for a while (kernels/linear/unpacked.h);
    // no weight is kept so. Scale and offset, or both halves' scales, as floats:
    float_pair,
    // both halves' int8, each as two words, and their unit as a float.
    word_pair,
};

// To cut a float off behind the bits of a bfloat16 takes a third of the time of rounding it, and
// makes it smaller: by a factor of 1 - 2^-8 / (2 ln 2) on average, over mantissas m that are as
// frequent as 1 / m. This makes good for it. What a bfloat16 holds comes out as it is.
constexpr float kCutOffFactor = 1.0f + 0.7213475f / 256;

// Scale groups whose peak is less are quantized to zeros, so that 1 / scale is finite.
constexpr float kLeastWeight = 1e-30f;

// Floats as they are: [O/16][I/U][16][U] of type kType, where U is kInputUnit. Inputs are filled up
// with zeros to a multiple of it. Activations beside them are rounded to the same type.
struct FloatPacking {
    static constexpr bool kHasScales = false;
    static constexpr bool kHasOffset = false;
    static constexpr bool kHasHalves = false;
    static constexpr std::int64_t kStoredInputs = 0;
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

// Codes in scale groups: G of them, the last filled up with zeros.
//
//   kBits 8  [O/16][G][8][16][4]  byte (s, lane, c) of a scale group is input 4s + c
//   kBits 4  [O/16][G][4][16][4]  byte (s, lane, c) holds input 8s + c in its low four bits and
//                                 8s + 4 + c in its high ones
//   kBits 5  [O/16][G][5][16][4]  the lower four bits as above; bit s of byte (4, lane, c) is the
//                                 fifth of input 4s + c
//   kBits 6  [O/16][G][6][16][4]  likewise; bits 2s and 2s + 1 of byte (4 + t, lane, c) are the
//                                 upper ones of input 16t + 4s + c
//
// Scales, with H eights of scale groups:
//
//   bf16, e8m0, f16  [O/16][G][16]
//   f16_offset       [O/16][G][2][16]  scales, and then offsets
//   six_bit_offset   [O/16][H] of: float16 [2][16], units of scales and of offsets; bytes [8][16],
//                    of each group its scale's six bits and, above them, its offset's lower two;
//                    bytes [4][16], of a pair of groups the upper four bits of offsets, first low
//   halves           [O/16][H] of: float16 [16]; int8 [8][2][16], of each group's halves
//
// A value is whole * kUnit * scale + offset. Its whole number is code - kZeroPoint, or what the
// codebook has for the code. Tiles multiply whole + kZeroPoint, an unsigned byte of kLargestByte at
// most, with activations that are quantized to int8.
//
// In matrix registers, where a call asks for it (LinearArgs), activations are rounded to bfloat16
// instead. Then scales and offsets are multiplied by kCutOffFactor, values are computed of them in
// float32, and of each value the upper 16 bits are multiplied. Denormals count as zeros.
struct CodePacking {
    static constexpr bool kHasScales = true;
    static constexpr bool kHasOffset = false;  // the scale type has one; then kZeroPoint is 0
    static constexpr bool kHasHalves = false;  // halves of scale groups have scales of their own
    static constexpr std::int64_t kInputUnit = kScaleGroup;
    static constexpr float kUnit = 1.0f;
    static constexpr bool kHasCodebook = false;
    // Inputs of a block in a checkpoint, and its bytes; 0 where checkpoints don't store it.
    static constexpr std::int64_t kStoredInputs = 0;
    static constexpr std::int64_t kStoredBytes = 0;
    static constexpr bool kHasScalesApart = false;  // in checkpoints, of one byte a block
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
    static constexpr std::int64_t kStoredInputs = 32;
    static constexpr std::int64_t kStoredBytes = 16;
    static constexpr bool kHasScalesApart = true;
    static constexpr bool kHasCodebook = true;
    static constexpr int kCodebook[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
};

// GGUF's formats, of which files hold blocks: codes of so many bits, and scales among them.
template <int kCodeBits, int kZero, ScaleType kScales, std::int64_t kInputs, std::int64_t kBytes>
struct BlockPacking : CodePacking {
    static constexpr int kBits = kCodeBits;
    static constexpr int kZeroPoint = kZero;
    static constexpr int kLargestByte = (1 << kCodeBits) - 1;
    static constexpr ScaleType kScaleType = kScales;
    static constexpr bool kHasOffset =
        kScales == ScaleType::f16_offset || kScales == ScaleType::six_bit_offset;
    static constexpr bool kHasHalves = kScales == ScaleType::halves;
    static constexpr std::int64_t kStoredInputs = kInputs;
    static constexpr std::int64_t kStoredBytes = kBytes;
    static constexpr bool kHasRowUnit = kCodeBits == 4;  // as int4 has
};

struct Q8_0Packing : BlockPacking<8, 128, ScaleType::f16, 32, 34> {};
struct Q4_0Packing : BlockPacking<4, 8, ScaleType::f16, 32, 18> {};
struct Q4_1Packing : BlockPacking<4, 0, ScaleType::f16_offset, 32, 20> {};
struct Q5_0Packing : BlockPacking<5, 16, ScaleType::f16, 32, 22> {};
struct Q5_1Packing : BlockPacking<5, 0, ScaleType::f16_offset, 32, 24> {};
struct Q4KPacking : BlockPacking<4, 0, ScaleType::six_bit_offset, 256, 144> {};
struct Q5KPacking : BlockPacking<5, 0, ScaleType::six_bit_offset, 256, 176> {};
struct Q6KPacking : BlockPacking<6, 32, ScaleType::halves, 256, 210> {};

// Every packing: its name, the number by which Python names it, its traits.
#define INFERNO_PACKINGS(PACKING)  \
    PACKING(f32, 0, F32Packing)    \
    PACKING(bf16, 1, Bf16Packing)  \
    PACKING(int8, 2, Int8Packing)  \
    PACKING(int4, 3, Int4Packing)  \
    PACKING(mxfp4, 4, Mxfp4Packing) \
    PACKING(q8_0, 5, Q8_0Packing)  \
    PACKING(q4_0, 6, Q4_0Packing)  \
    PACKING(q4_1, 7, Q4_1Packing)  \
    PACKING(q5_0, 8, Q5_0Packing)  \
    PACKING(q5_1, 9, Q5_1Packing)  \
    PACKING(q4_k, 10, Q4KPacking)  \
    PACKING(q5_k, 11, Q5KPacking)  \
    PACKING(q6_k, 12, Q6KPacking)

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

// How many scale groups have their scales together, and the bytes of these for one output.
constexpr std::int64_t groups_of(ScaleType type) {
    return type == ScaleType::six_bit_offset || type == ScaleType::halves ? 8 : 1;
}

constexpr std::int64_t size_of(ScaleType type) {
    switch (type) {
        case ScaleType::none: return 0;
        case ScaleType::e8m0: return 1;
        case ScaleType::f16_offset: return 4;
        case ScaleType::float_pair: return 8;
        case ScaleType::word_pair: return 12;
        case ScaleType::six_bit_offset: return 16;
        case ScaleType::halves: return 18;
        default: return 2;
    }
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
        constexpr ScaleType kType = decltype(format)::kScaleType;
        return num_scale_groups(weight.inputs) / groups_of(kType) * kPanel * size_of(kType);
    });
}

}  // namespace
}  // namespace inferno
