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

inline std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

}  // namespace inferno
