// SPDX-License-Identifier: Apache-2.0
// Open MPI's all-reduce by size: the peer of bench/collectives, which compiles it with mpicc.
//
// Arguments: samples, seconds for each size, sizes in bytes. Rank 0 prints a line "BYTES SECONDS"
// for each, the median over samples of the slowest rank's mean, float32 sums in place.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *data;

static double runs(int count, long n) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < n; i++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double mine = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest / (double)n;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    double t[64];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int samples = argc > 3 ? (int)strtol(argv[1], NULL, 10) : 0;
    if (samples < 1 || samples > 64) MPI_Abort(MPI_COMM_WORLD, 2);
    double seconds = strtod(argv[2], NULL);
    for (int k = 3; k < argc; k++) {
        long bytes = strtol(argv[k], NULL, 10);
        int count = (int)(bytes / 4);
        data = malloc((size_t)bytes);
        memset(data, 0, (size_t)bytes);
        (void)runs(count, 2);
        double budget = seconds / samples / runs(count, 2);
        long n = budget < 1.0 ? 1 : budget > 5000.0 ? 5000 : (long)budget;
        for (int i = 0; i < samples; i++) t[i] = runs(count, n);
        qsort(t, (size_t)samples, sizeof *t, by_size);
        if (rank == 0) printf("%ld %.9g\n", bytes, t[samples / 2]);
        free(data);
    }
    MPI_Finalize();
    return 0;
}
