// The types of the fields in the kernels' structs of arguments. Pointers are to device memory; `bf16` is the upper 16
// bits of an f32.
typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(16) Quad {
    u32 x, y, z, w;
};
struct alignas(16) Floats {
    float x, y, z, w;
};
struct alignas(8) Pairs {
    u32 x, y;
};
template <class A, class B> struct Same {
    static constexpr bool value = false;
};
template <class A> struct Same<A, A> {
    static constexpr bool value = true;
};
