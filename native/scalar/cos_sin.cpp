// The scalar level's cosines and sines: the same as every other's.
#include "../kernels/cos_sin.cpp"
