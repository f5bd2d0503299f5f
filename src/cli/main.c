// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h" /* gw_cli_main */

int main(int argc, char **argv) { return gw_cli_main(argc, argv); }
