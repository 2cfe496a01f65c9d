export default /* HTML */ `
  <div class="hub pg" data-way="">
    <h2 class="unseen">Hub</h2>
    <p class="account">
      <span class="who" role="status">Checking sign-in…</span>
      <label class="token-label" hidden
        >Token
        <input
          class="token"
          type="password"
          autocomplete="off"
          spellcheck="false"
          placeholder="hf_…"
          title="Used for the operations that you start, and not stored"
      /></label>
      <button type="button" class="quiet check" hidden>Check</button>
    </p>
    <div class="columns">
      <section class="publish" aria-label="Publish">
        <h3>Publish a model</h3>
        <p class="hint">
          Creates a repository with a model card, curves and scores that anyone can load with
          transformers. BERT, GPT-2 and BART need no custom code; the other architectures include
          theirs.
        </p>
        <label
          >Model
          <select class="model"></select
        ></label>
        <label
          >Checkpoint
          <select class="which"></select
        ></label>
        <label
          >Name on the Hub
          <input
            class="repo"
            type="text"
            spellcheck="false"
            autocomplete="off"
            maxlength="190"
            placeholder="you/reverse-10"
        /></label>
        <label
          >Licence
          <input
            class="license"
            type="text"
            spellcheck="false"
            autocomplete="off"
            maxlength="40"
            placeholder="mit, cc-by-4.0, …"
            title="Default: mit for built-in tasks, a Hub dataset's licence, none for other data"
        /></label>
        <label class="tick"
          ><input type="checkbox" class="private" /> private: visible only to you</label
        >
        <label class="tick"
          ><input type="checkbox" class="data" /> also publish the training set as a dataset</label
        >
        <p class="buttons">
          <button type="button" class="quiet main preview-push">Preview</button>
          <button type="button" class="quiet cancel" hidden>Cancel</button>
        </p>
        <p class="progress" role="status" hidden></p>
        <p class="publish-note" role="alert"></p>
        <div class="plan" hidden>
          <p class="what"></p>
          <details>
            <summary class="files-summary"></summary>
            <table class="files">
              <tbody></tbody>
            </table>
          </details>
          <details class="card-preview">
            <summary>Model card</summary>
            <pre></pre>
          </details>
          <p class="buttons">
            <button type="button" class="quiet main go">Publish</button>
            <button type="button" class="quiet not-now">Cancel</button>
          </p>
        </div>
        <p class="published" hidden></p>
        <fieldset class="keep" hidden>
          <legend>During training</legend>
          <p class="keep-words hint"></p>
          <label class="keep-every"
            >every
            <input class="minutes" type="number" min="1" max="120" step="1" value="10" /> min</label
          >
          <button type="button" class="quiet keep-on">Publish during training</button>
          <button type="button" class="quiet keep-off" hidden>Stop publishing</button>
          <p class="keep-note" role="alert"></p>
        </fieldset>
      </section>
      <section class="find" aria-label="Models">
        <div class="opened" hidden>
          <div class="bar">
            <h3 class="opened-name"></h3>
            <button
              type="button"
              class="quiet link"
              title="Copies a link that opens this model here"
            >
              Copy link</button
            ><button type="button" class="quiet close-opened">Close</button>
          </div>
          <p class="opened-about"></p>
          <p class="buttons">
            <button
              type="button"
              class="quiet main bring"
              title="Downloads and validates the model and adds it to your runs"
            >
              Import
            </button>
            <button
              type="button"
              class="quiet measure"
              title="Downloads the model and evaluates it on the same held-out sequences"
            >
              Reproduce evaluation
            </button>
            <button type="button" class="quiet cancel-opened" hidden>Cancel</button>
          </p>
          <p class="opened-progress" role="status" hidden></p>
          <p class="opened-note" role="alert"></p>
          <table class="scores" hidden>
            <thead>
              <tr>
                <th scope="col"><span class="unseen">Measured by</span></th>
                <th scope="col">exact match</th>
                <th scope="col">held-out sequences</th>
              </tr>
            </thead>
            <tbody></tbody>
          </table>
          <p class="verdict hint"></p>
          <details class="opened-files">
            <summary></summary>
            <table>
              <tbody></tbody>
            </table>
          </details>
          <details class="revisions">
            <summary></summary>
            <table>
              <tbody></tbody>
            </table>
          </details>
        </div>
        <div class="gallery">
          <div class="bar">
            <h3>Models on the Hub</h3>
            <span class="hint gallery-words" role="status"></span
            ><button type="button" class="quiet again">Refresh</button>
          </div>
          <form class="any">
            <label
              >Other repository
              <input
                class="any-repo"
                type="text"
                spellcheck="false"
                autocomplete="off"
                maxlength="190"
                placeholder="user/name or URL" /></label
            ><button type="submit" class="quiet">Open</button>
          </form>
          <p class="gallery-note" role="alert"></p>
          <div class="scrolling" tabindex="0">
            <table class="models" hidden>
              <thead>
                <tr></tr>
              </thead>
              <tbody></tbody>
            </table>
          </div>
        </div>
        <h3 class="here-title">On this machine</h3>
        <div class="scrolling" tabindex="0">
          <table class="here">
            <thead>
              <tr>
                <th scope="col">model</th>
                <th scope="col" class="wide">task</th>
                <th scope="col" class="number wide">parameters</th>
                <th scope="col" class="number">exact match</th>
                <th scope="col"><span class="unseen">Actions</span></th>
              </tr>
            </thead>
            <tbody></tbody>
          </table>
        </div>
      </section>
    </div>
  </div>
`;
