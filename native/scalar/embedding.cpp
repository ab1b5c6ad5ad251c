// Rows of a packed weight, unpacked.
#include "contract/isa_functions.h"
#include "packed.h"

namespace inferno::INFERNO_ISA {

void embedding(const std::int64_t* ids, const Weight& weight, const Rows& out, Team& team) {
    with_packing(weight.packing, [&](auto format) {
        team.run(out.count, 1, [&](Index begin, Index end, int) {
            for (Index t = begin; t < end; ++t) {
                for (Index i = 0; i < weight.inputs; ++i) {
                    write(out, t, i, value<decltype(format)>(weight, ids[t], i));
                }
            }
        });
    });
}

}  // namespace inferno::INFERNO_ISA
