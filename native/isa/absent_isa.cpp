// An isa that was left out of this build.
#include "contract/kernels.h"

namespace inferno::INFERNO_ISA {

const Kernels* table() { return nullptr; }

}  // namespace inferno::INFERNO_ISA
