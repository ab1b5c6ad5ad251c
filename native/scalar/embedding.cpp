// Rows of a packed weight, unpacked.
#include "../kernels/families.h"
#include "packed.h"

namespace inferno::INFERNO_LEVEL {

void embedding(const std::int64_t* ids, const Weight& weight, const Rows& out, Team& team) {
    team.run(out.count, 1, [&](Index begin, Index end, int) {
        for (Index t = begin; t < end; ++t) {
            for (Index i = 0; i < weight.inputs; ++i) {
                write(out, t, i, value(weight, ids[t], i));
            }
        }
    });
}

}  // namespace inferno::INFERNO_LEVEL
