// How fast this machine reads memory: sums a buffer larger than its caches with all threads.
// Each line on stdin asks for one figure; stdout gets GB/s, the median of PASSES passes.
//   gcc -O3 -march=native -ffast-math -fopenmp bandwidth.c -o bandwidth && ./bandwidth MIB PASSES
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { LANES = 128, AHEAD = 2048 };

static float sum(const float *from, size_t count) {
    float lanes[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES) {
        __builtin_prefetch(from + i + AHEAD);
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += from[i + lane];
    }
    float total = 0;
    for (int lane = 0; lane < LANES; lane++)
        total += lanes[lane];
    return total;
}

static int ascending(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 1024;
    int passes = argc > 2 ? atoi(argv[2]) : 5;
    size_t share = mib * 1024 * 1024 / sizeof(float) / omp_get_max_threads() / LANES * LANES;
    size_t count = share * omp_get_max_threads();
    float *buffer = aligned_alloc(1 << 21, (count * sizeof(float) + (1 << 21)) >> 21 << 21);
    double *rates = malloc(passes * sizeof(double));
    if (!buffer || !rates)
        return 1;
#pragma omp parallel
    for (size_t i = 0, at = share * omp_get_thread_num(); i < share; i++)
        buffer[at + i] = (float)(i & 7);
    char line[16];
    float kept = 0;
    while (fgets(line, sizeof line, stdin)) {
        for (int pass = 0; pass < passes; pass++) {
            double start = omp_get_wtime();
            float total = 0;
#pragma omp parallel reduction(+ : total)
            total += sum(buffer + share * omp_get_thread_num(), share);
            rates[pass] = count * sizeof(float) / (omp_get_wtime() - start) / 1e9;
            kept += total;
        }
        qsort(rates, passes, sizeof(double), ascending);
        printf("%.2f\n", rates[passes / 2]);
        fflush(stdout);
    }
    return kept == 1.5f;  // used, so that no pass is optimised away
}
