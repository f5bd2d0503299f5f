// SPDX-License-Identifier: Apache-2.0
// Ranks that mpirun or srun started: joining them over MPI.
#ifndef GW_COMM_MPI_H
#define GW_COMM_MPI_H

#include "base/diag.h" /* gw_status, gw_diags */
#include "comm/comm.h" /* gw_comm */

/* How many ranks the launcher of this process says there are, from the environment that mpirun and
 * srun give: 0 when neither started it, or when it is not one of a parallel step (the batch script
 * of a Slurm job is not). Cheap; opens nothing. */
int gw_mpi_launched(void);

/* Opens the plugin gradwright-mpi.so and joins the other ranks; *out is a communicator of all of
 * them, or NULL when there is only one. The plugin is $GRADWRIGHT_MPI, or lies beside the program
 * or in ../lib/gradwright. timeout_s is how long a rank may show no sign of life; 0: 5 s if all
 * ranks share one host, otherwise 60 s. To be called once, from the thread that makes all later
 * calls. From here on a process that ends with another status than 0, or without gw_launch_leave,
 * ends all ranks. Errors: GW_ERR_DEVICE with the Debian package that is missing, GW_ERR_PEER. */
GW_WARN_UNUSED gw_status gw_mpi_join(double timeout_s, gw_comm **out, gw_diags *dg);

#endif
