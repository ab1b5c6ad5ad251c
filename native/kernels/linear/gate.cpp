// Gated activations of rows: gates in the first half, ups in the second.
#include "contract/isa_functions.h"
#include "gate_lanes.h"

namespace inferno::INFERNO_ISA {
namespace {

constexpr Index kGrainElements = 8192;  // a few microseconds

template <class E, class O>
void gate_row(const typename E::Raw* gates, const typename E::Raw* ups, Index width,
              const Activation& activation, typename O::Raw* out) {
    for (Index i = 0; i < width; i += 16) {
        const F gate = load_part<E>(gates, i, width), up = load_part<E>(ups, i, width);
        store_part<O>(out, i, width, gated<E>(gate, up, activation));
    }
}

}  // namespace

void gate(const Rows& x, const Activation& activation, const Rows& out, Team& team) {
    with_activation_type(x.type, [&](auto e) {
        with_activation_type(out.type, [&](auto o) {
            using E = decltype(e);
            using O = decltype(o);
            const auto* input = static_cast<const typename E::Raw*>(x.data);
            auto* output = static_cast<typename O::Raw*>(out.data);
            const Index width = out.width;
            const Index grain = 1 + kGrainElements / (width + 1);
            team.run(x.count, grain, [&](Index begin, Index end, int) {
                for (Index t = begin; t < end; ++t) {
                    const auto* row = input + t * x.stride;
                    gate_row<E, O>(row, row + width, width, activation, output + t * out.stride);
                }
            });
        });
    });
}

}  // namespace inferno::INFERNO_ISA
