export default /* HTML */ `
  <div class="inspect pg">
    <h2 class="unseen">Inspect</h2>
    <div class="top">
      <select class="subject" aria-label="Model to inspect"></select>
      <label class="at-step" hidden
        >step
        <input
          class="step"
          type="range"
          min="0"
          max="1"
          value="0"
          step="1"
          aria-label="Step of the run" />
        <output class="step-words"></output
      ></label>
      <span class="right"
        ><button type="button" class="quiet link" title="Copy a link to this view">
          Copy link
        </button>
        <details class="menu export">
          <summary class="quiet">Export</summary>
          <div>
            <button type="button" data-as="png" title="This view as displayed">Image (PNG)</button
            ><button type="button" data-as="csv">Data (CSV)</button
            ><button type="button" data-as="json">Data (JSON)</button
            ><button
              type="button"
              data-as="frame"
              title="HTML that embeds this view in another page"
            >
              Copy embed code (HTML)</button
            ><button
              type="button"
              data-as="figures"
              title="All figures of this sequence: PNG, SVG, PDF and data; takes about 30 seconds"
            >
              All figures for print (ZIP)
            </button>
          </div>
        </details></span
      >
    </div>
    <div class="ask">
      <input
        class="sequence"
        type="text"
        maxlength="400"
        spellcheck="false"
        autocomplete="off"
        aria-label="Input sequence"
        placeholder="3 1 4 1 5"
      />
      <span class="arrow" aria-hidden="true">→</span
      ><output class="answer symbols" aria-live="polite"></output>
      <span class="note hint"></span>
    </div>
    <p class="problem" role="alert"></p>
    <div class="views" role="tablist" aria-label="Views"></div>
    <h3 class="unseen">Selected view</h3>
    <p class="explain hint"></p>
    <div class="stage"></div>
    <a class="open-whole" target="_blank" rel="noopener">Open in Transformer Playground</a>
  </div>
`;
