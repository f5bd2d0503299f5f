// SPDX-License-Identifier: Apache-2.0
// A Slurm job that queues itself again.
#ifndef GW_CLI_REQUEUE_H
#define GW_CLI_REQUEUE_H

#include <stdbool.h>

/* The number of the job that this process belongs to; NULL: to none. */
const char *gw_requeue_job(void);
/* Was the job queued again before? Then a run is to be continued. */
bool gw_requeue_again(void);
/* Says so and has Slurm queue the job again (scontrol requeue JOB); warns where that fails. Waits
 * half a minute at most. Call it when everything is saved: Slurm may end the job at once. */
void gw_requeue_ask(void);

#endif
