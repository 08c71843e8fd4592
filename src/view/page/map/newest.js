// SPDX-License-Identifier: Apache-2.0
//
// Runs one task at a time; of those that arrive meanwhile, only the newest. For requests that follow
// the pointer: none is aborted, because that would close its connection.

export class Newest {
  /** @type {(() => Promise<void>) | null} */
  #next = null;
  #running = false;

  get idle() {
    return !this.#running;
  }

  async run(/** @type {() => Promise<void>} */ task) {
    this.#next = task;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#next) {
        const now = this.#next;
        this.#next = null;
        await now();
      }
    } finally {
      this.#running = false;
    }
  }

  /** Forgets a task that waits. */
  clear() {
    this.#next = null;
  }
}
