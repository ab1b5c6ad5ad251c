// The table of one isa's kernels.
#include "contract/isa_functions.h"
#include "simd/matrix_registers.h"

#define INFERNO_TEXT(name) #name
#define INFERNO_NAME(name) INFERNO_TEXT(name)

namespace inferno::INFERNO_ISA {

const Kernels* table() {
#define INFERNO_ENTRY(result, name, parameters) name,
    static const Kernels kernels = {INFERNO_NAME(INFERNO_ISA), kHasMatrixRegisters,
                                    INFERNO_KERNEL_LIST(INFERNO_ENTRY)};
#undef INFERNO_ENTRY
    return &kernels;
}

}  // namespace inferno::INFERNO_ISA
