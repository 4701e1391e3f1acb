// The record: one span of one SM's time, 64 bytes, four 16-byte stores by one thread.
// Twin: RECORD_DTYPE and Kind in wavescope/trace.py.  With PROBE 0 every call is empty.
#pragma once

#ifndef PROBE
#define PROBE 0
#endif

namespace wavescope {

// Order is priority: where spans overlap, the SM counts as doing the larger.  0: no record.
enum Kind { KIND_NONE = 0, KIND_CTA = 1, KIND_WAIT = 2, KIND_EPILOGUE = 3, KIND_FIXUP = 4, KIND_MAC = 5 };

struct alignas(64) Record {
    unsigned long long begin_ns, begin_clock;  // globaltimer, clock64
    unsigned long long end_ns, end_clock;
    unsigned int cta, unit, tile_m, tile_n;
    unsigned int k_begin, k_end;
    unsigned short sm;
    unsigned char kind, lane;
    unsigned int stall_clock;
};
static_assert(sizeof(Record) == 64, "Python reads records of 64 bytes");

struct Stamp {
    unsigned long long ns, clock;
};

#if PROBE

// volatile and memory clobber: the reads stay where they stand
__device__ __forceinline__ Stamp stamp() {
    Stamp now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now.ns)::"memory");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now.clock)::"memory");
    return now;
}

__device__ __forceinline__ unsigned int sm_id() {
    unsigned int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

__device__ __forceinline__ void store16(void* to, unsigned long long low, unsigned long long high) {
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(low), "l"(high) : "memory");
}

__device__ __forceinline__ unsigned long long pack(unsigned int low, unsigned int high) {
    return static_cast<unsigned long long>(high) << 32 | low;
}

__device__ __forceinline__ void record_begin(Record* record, const Stamp& at) {
    store16(&record->begin_ns, at.ns, at.clock);
}

// What a span is of: a CTA, and the unit and place of a tile; ~0 for none.
struct SpanOf {
    unsigned int cta, unit, tile_m, tile_n, k_begin, k_end;
};

// A record counts once it is named.
__device__ __forceinline__ void record_name(Record* record, Kind kind, const SpanOf& of, unsigned int lane,
                                            unsigned int stall) {
    store16(&record->cta, pack(of.cta, of.unit), pack(of.tile_m, of.tile_n));
    store16(&record->k_begin, pack(of.k_begin, of.k_end),
            pack(sm_id() | static_cast<unsigned int>(kind) << 16 | lane << 24, stall));
}

// The same where another thread writes the stall.
__device__ __forceinline__ void record_name(Record* record, Kind kind, const SpanOf& of, unsigned int lane) {
    store16(&record->cta, pack(of.cta, of.unit), pack(of.tile_m, of.tile_n));
    *reinterpret_cast<unsigned long long*>(&record->k_begin) = pack(of.k_begin, of.k_end);
    *reinterpret_cast<unsigned int*>(&record->sm) = sm_id() | static_cast<unsigned int>(kind) << 16 | lane << 24;
}

__device__ __forceinline__ void record_end(Record* record, const Stamp& at) {
    store16(&record->end_ns, at.ns, at.clock);
}

#endif

}  // namespace wavescope
