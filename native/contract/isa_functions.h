// The functions of one isa, each family defined in a file of its own.
#pragma once

#include "kernels.h"

namespace inferno::INFERNO_ISA {

#define INFERNO_DECLARATION(result, name, parameters) result name parameters;
INFERNO_KERNEL_LIST(INFERNO_DECLARATION)
#undef INFERNO_DECLARATION

const Kernels* table();

}  // namespace inferno::INFERNO_ISA
