// Copyright (c) 2026, The Apiary authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// The search runs in a worker, which browsers refuse to pages opened from a disk: a hidden frame does there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      // As between threads: a copy, of the receiver's own classes, and not before the sender is done.
      inner.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => {
          const event = new MessageEvent("message", { data: copy });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        });
      };
      const script = inner.document.createElement("script");
      script.src = new URL(address, location.href).href;
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      inner.document.head.append(script);
    }
    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(structuredClone(data));
        return;
      }
      const inner = this.frame.contentWindow;
      const copy = inner.structuredClone(data);
      setTimeout(() => inner.dispatchEvent(new inner.MessageEvent("message", { data: copy })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
