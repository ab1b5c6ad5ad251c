// The scalar level's table: the same as every other's.
#include "../kernels/table.cpp"
