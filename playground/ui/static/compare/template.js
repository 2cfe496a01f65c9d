export default /* HTML */ `
  <div class="compare pg">
    <h2 class="unseen">Compare</h2>
    <div class="top">
      <label class="whose"
        >Your model
        <select class="subject" aria-label="Your model"></select
      ></label>
      <span class="net" role="status"></span>
      <button
        type="button"
        class="quiet link"
        title="Copy a link to this view with its fields; your own runs are not shared"
      >
        Copy link
      </button>
    </div>
    <div class="views" role="tablist" aria-label="Views"></div>
    <p class="explain hint"></p>
    <h3 class="unseen">Selected view</h3>
    <div class="stage"></div>
  </div>
`;
