// One level's table of kernels.
#include "families.h"

#define INFERNO_TEXT(name) #name
#define INFERNO_NAME(name) INFERNO_TEXT(name)

namespace inferno::INFERNO_LEVEL {

const Kernels* table() {
    static const Kernels kernels = {INFERNO_NAME(INFERNO_LEVEL),
                                    linear,
                                    experts,
                                    embedding,
                                    cos_sin,
                                    rms_norm,
                                    rotate_and_store,
                                    attention,
                                    gate,
                                    quantize,
                                    find_peaks,
                                    weigh_blocks,
                                    weigh_each,
                                    find_at_least};
    return &kernels;
}

}  // namespace inferno::INFERNO_LEVEL
