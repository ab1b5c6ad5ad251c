// From sums to outputs: biases, gates, and how they are written.
#pragma once

#include "gate_lanes.h"
#include "product.h"
#include "simd/elements.h"

namespace inferno::INFERNO_ISA {
namespace {

// Outputs of so many bytes are streamed past the caches, which hardly hold them: else each line
// would be fetched to be filled, and tiles would wait for it. Measured: int8's and int4's products
// of 511 rows take 4 to 14 % less.
constexpr Index kStreamingBytes = 1 << 20;

// Sixteen outputs.
inline F outputs_of(const Product& product, Index panel, const float* sums) {
    if (!product.bias.data) return load(sums);
    return add(load(sums), load_weights(product.bias, panel * kPanel, product.weight.outputs));
}

template <class Out>
void write_vector(const Product& product, Index row, Index panel, F outputs) {
    auto* out = static_cast<typename Out::Raw*>(product.out.data) + row * product.out.stride;
    store_part<Out>(out, panel * kPanel, product.out.width, outputs);
}

inline void stream_vector(const Product& product, Index row, Index panel, F outputs) {
    float* out = static_cast<float*>(product.out.data) + row * product.out.stride;
    store_streaming(out + panel * kPanel, outputs);
}

// Whether outputs are floats that are streamed past the caches. Their panels are whole.
inline bool is_streaming(const Rows& out) {
    return out.type == Type::f32 && out.count * out.width * 4 >= kStreamingBytes &&
           out.width % kPanel == 0 && out.stride % kPanel == 0 &&
           reinterpret_cast<std::uintptr_t>(out.data) % 64 == 0;
}

// sums: [rows][panels][16]
inline void write_sums(const Product& product, Range rows, Range panels, const float* sums) {
    const bool is_streamed = is_streaming(product.out);
    with_activation_type(product.out.type, [&](auto type) {
        for (Index row = rows.begin; row < rows.end; ++row) {
            for (Index panel = panels.begin; panel < panels.end; ++panel, sums += kPanel) {
                const F outputs = outputs_of(product, panel, sums);
                if (is_streamed) {
                    stream_vector(product, row, panel, outputs);
                } else {
                    write_vector<decltype(type)>(product, row, panel, outputs);
                }
            }
        }
    });
}

// Whether these panels' sums are outputs, that a tile may write itself.
inline bool are_outputs(const Product& product, Range panels) {
    const Rows& out = product.out;
    return out.type == Type::f32 && !product.bias.data && panels.end * kPanel <= out.width;
}

// sums: of a row's gates, `row_step` numbers after the last row's, and `up_step` after them what they
// gate.
inline void write_gated(const Product& product, Range rows, Index pair, const float* sums,
                        Index row_step, Index up_step) {
    const Index up_panel = num_panels(product.weight) / 2 + pair;
    const bool is_streamed = is_streaming(product.out);
    with_activation_type(product.out.type, [&](auto type) {
        using Out = decltype(type);
        for (Index row = rows.begin; row < rows.end; ++row, sums += row_step) {
            const F gate = Out::rounded(outputs_of(product, pair, sums));
            const F up = Out::rounded(outputs_of(product, up_panel, sums + up_step));
            const F outputs = gated<Out>(gate, up, *product.gate);
            if (is_streamed) {
                stream_vector(product, row, pair, outputs);
            } else {
                write_vector<Out>(product, row, pair, outputs);
            }
        }
    });
}

}  // namespace
}  // namespace inferno::INFERNO_ISA
